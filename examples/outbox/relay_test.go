package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
)

// TestExactlyOnce runs two relays instead of one, restarts both at random, and loses replies. Every
// decision must be in the stream once and in order.
func TestExactlyOnce(t *testing.T) {
	nc, closeNATS, err := connect("", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer closeNATS()
	b, err := memory.Open(t.Context(), memory.New(), "outbox", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	first, err := newRelay(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}

	const decisions = 300
	shards := []string{"orders", "eu.west."}
	ctx, enough := context.WithTimeout(t.Context(), time.Minute)
	defer enough()
	var relays sync.WaitGroup
	for range 2 {
		relays.Go(func() {
			for ctx.Err() == nil {
				some, cancel := context.WithTimeout(ctx, time.Duration(20+rand.IntN(100))*time.Millisecond)
				if err := follow(some, b, nc); err != nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	var owners sync.WaitGroup
	for _, shard := range shards {
		owners.Go(func() {
			err := core.RunSingleton(t.Context(), b, shard, func(ctx context.Context, lease *core.Lease) error {
				for i := range decisions {
					if _, err := lease.Append(ctx, fmt.Appendf(nil, "%d", i+1)); err != nil {
						return err
					}
				}
				return nil
			}, &core.Options{Node: "owner"})
			if err != nil {
				t.Error(err)
			}
		})
	}
	owners.Wait()

	consumer, err := first.stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	last := make(map[string]follower.Position)
	for range decisions * len(shards) {
		msg, err := consumer.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err != nil {
			t.Fatalf("after %v: %v", last, err)
		}
		p, err := follower.ParsePosition(msg.Headers().Get(headerPosition))
		if err != nil {
			t.Fatal(err)
		}
		if before := last[p.Shard]; p.Seq != before.Seq+1 || p.Token < before.Token ||
			string(msg.Data()) != fmt.Sprint(p.Seq) || msg.Subject() != subject(p.Shard) {
			t.Errorf("%v with %q on %s came after %v", p, msg.Data(), msg.Subject(), before)
		}
		last[p.Shard] = p
	}
	enough()
	relays.Wait()
	info, err := first.stream.Info(t.Context())
	if err != nil || info.State.Msgs != decisions*uint64(len(shards)) {
		t.Errorf("the stream has %d messages, %v, want %d", info.State.Msgs, err, decisions*len(shards))
	}
}

// follow runs a relay until ctx ends.
func follow(ctx context.Context, b core.Backend, nc *nats.Conn) error {
	r, err := newRelay(context.WithoutCancel(ctx), nc)
	if err != nil {
		return err
	}
	t, err := follower.NewTailer(b, &follower.Options{BackoffMin: time.Millisecond, Batch: 7})
	if err != nil {
		return err
	}
	if err := t.Follow("outbox", &lossy{relay: r}, "*"); err != nil {
		return err
	}
	return t.Run(ctx)
}

// lossy is a relay that loses some replies.
type lossy struct{ *relay }

func (l *lossy) Apply(ctx context.Context, b follower.Batch) error {
	err := l.relay.Apply(ctx, b)
	if err == nil && rand.IntN(10) == 0 {
		return errors.New("reply lost")
	}
	return err
}

// TestRun runs the whole application briefly. If the machine is too busy to open the store in that
// time, TestRun tries again with more time.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	for moment := time.Second; ; moment *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), moment)
		err := run(ctx, path, "orders", "")
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && moment < time.Minute {
			continue
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
}
