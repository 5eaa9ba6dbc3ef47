package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/sharding"
)

func broker(t *testing.T) jetstream.JetStream {
	t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: t.TempDir(), NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(ample.Time) {
		t.Fatal("the NATS server did not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// TestConsumer checks that each deposit is booked once while members come and go.
func TestConsumer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*ample.Time)
	defer cancel()
	js := broker(t)
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: streamName, Subjects: []string{subjects}})
	if err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(t.TempDir(), "consumer.db")
	start := func(node string) *fxtest.App {
		c, err := load(db, node)
		if err != nil {
			t.Fatal(err)
		}
		logger := slog.New(slog.NewTextHandler(t.Output(), nil)).With("node", node)
		a := fxtest.New(t, app(c, stream), fx.Supply(logger), fx.StopTimeout(ample.Time))
		a.RequireStart()
		return a
	}
	want := map[string]int64{}
	publish := func(n int) {
		t.Helper()
		for i := range n {
			account, cents := "account-"+strconv.Itoa(i%20), int64(i%7-3)
			subject, payload := deposit(account, cents)
			if _, err := js.Publish(ctx, subject, payload); err != nil {
				t.Fatal(err)
			}
			want[account] += cents
		}
	}
	a := start("a")
	publish(100)
	b := start("b")
	publish(100)
	a.RequireStop()
	publish(100)
	c := start("c")
	publish(100)

	look, err := sqlite.Open(ctx, db, "consumer", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := look.Close(); err != nil {
			t.Error(err)
		}
	}()
	booked := func() map[string]int64 {
		got := map[string]int64{}
		for account := range want {
			item, err := look.Get(ctx, core.ShardID(shard(account)), balanceItem+account)
			if err != nil {
				t.Fatal(err)
			}
			if item == nil {
				continue
			}
			if got[account], err = strconv.ParseInt(string(item.Value), 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		return got
	}
	last := func() map[string]uint64 { // number of the last message of each subject
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subjects))
		if err != nil {
			t.Fatal(err)
		}
		numbers := map[string]uint64{}
		for subject := range info.State.Subjects {
			msg, err := stream.GetLastMsgForSubject(ctx, subject)
			if err != nil {
				t.Fatal(err)
			}
			numbers[subject[len("deposits."):]] = msg.Sequence
		}
		return numbers
	}()
	done := func() bool {
		for name, number := range last {
			item, err := look.Get(ctx, core.ShardID(name), lastItem)
			if err != nil {
				t.Fatal(err)
			}
			if item == nil || string(item.Value) != strconv.FormatUint(number, 10) {
				return false
			}
		}
		return true
	}
	if !ample.Soon(ctx, done) {
		t.Fatalf("not everything is booked: got %v, want %v", booked(), want)
	}
	if got := booked(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got balances %v, want %v", got, want)
	}
	b.RequireStop()
	c.RequireStop()
}

// TestServe checks that serve reports a nonzero exit code and an error of stopping.
func TestServe(t *testing.T) {
	ends := func(code int) fx.Option {
		return fx.Invoke(func(lc fx.Lifecycle, sd fx.Shutdowner) {
			lc.Append(fx.StartHook(func() error { return sd.Shutdown(fx.ExitCode(code)) }))
		})
	}
	broken := errors.New("cannot be closed")
	fails := fx.Invoke(func(lc fx.Lifecycle) { lc.Append(fx.StopHook(func() error { return broken })) })
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	if err := serve(ctx, fx.New(fx.NopLogger, ends(0))); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	err := serve(ctx, fx.New(fx.NopLogger, ends(3), fails))
	if err == nil || !strings.Contains(err.Error(), "exit code 3") || !errors.Is(err, broken) {
		t.Errorf("got %v, want the exit code and the error of stopping", err)
	}
}

// TestShards checks that the configuration contains exactly the shards to which accounts belong.
func TestShards(t *testing.T) {
	c, err := load("x.db", "a")
	if err != nil {
		t.Fatal(err)
	}
	var s sharding.Options
	if err := c.Section("sharding", &s); err != nil {
		t.Fatal(err)
	}
	configured, err := keyspace.Expand(s.Shards...)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for i := range 1000 {
		used[shard("account-"+strconv.Itoa(i))] = true
	}
	if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, configured) {
		t.Errorf("the accounts belong to %v, and the configuration has %v", got, configured)
	}
}
