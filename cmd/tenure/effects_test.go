//go:build unix

package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// TestEffects lists the effects in doubt, and decides their outcomes by hand. The leader carries
// out the decisions.
func TestEffects(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	ready, hang := make(chan error, 1), make(chan struct{})
	var outcome error
	stop := p.member("leader", "pay", func(ctx context.Context, l *core.Lease) error {
		ledger, err := effect.Open(ctx, l, &effect.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			ready <- err
			return err
		}
		defer ledger.Close()
		lost := func(context.Context, string) ([]byte, error) { return nil, errors.New("no answer\x1b[31m") }
		for _, key := range []string{"pay/1", "pay/2", "pay/3"} {
			if _, err := ledger.Do(ctx, key, lost); !errors.Is(err, effect.ErrInDoubt) {
				outcome = errors.Join(outcome, err)
			}
		}
		go func() {
			_, _ = ledger.Do(context.Background(), "pay/4", func(context.Context, string) ([]byte, error) {
				close(ready)
				<-hang
				return nil, nil
			})
		}()
		<-ctx.Done()
		return nil
	})
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	var list []effectOut
	p.decode(&list, "effects")
	if len(list) != 4 || list[0].Key != "pay/1" || list[0].State != effect.InDoubt || list[0].UnderWay || !list[3].UnderWay ||
		list[0].ID != effect.ID("test/pay", "pay/1") {
		t.Errorf("got %+v", list)
	}
	if out, _ := p.run(exitOK, "effects", "pay", "--limit", "2"); strings.Count(out, "in doubt") != 2 || strings.Contains(out, "\x1b") {
		t.Errorf("got %q", out)
	}
	p.bad(exitRefused, "is under way", "effect", "resolve", "pay", "pay/4", "done", "-y")
	close(hang)
	for _, x := range []struct {
		code int
		want string
		args []string
	}{
		{exitNotFound, "has no effect", []string{"pay", "pay/5", "done", "-y"}},
		{exitNotFound, "never owned", []string{"other", "pay/1", "done", "-y"}},
		{exitUsage, "use done, failed or repeat", []string{"pay", "pay/1", "odd", "-y"}},
		{exitUsage, "has no result", []string{"pay", "pay/1", "failed", "--result", "x", "-y"}},
		{exitUsage, "name one shard", []string{"pay*", "pay/1", "done", "-y"}},
		{exitUsage, "letters, digits", []string{"pay", "pay 1", "done", "-y"}},
		{exitUsage, "takes SHARD KEY", []string{"pay", "pay/1"}},
		{exitUsage, "--wait -1s is negative", []string{"pay", "pay/1", "done", "--wait", "-1s", "-y"}},
	} {
		p.bad(x.code, x.want, append([]string{"effect", "resolve"}, x.args...)...)
	}
	p.bad(exitUsage, "resolve or unresolve", "effect", "odd")
	p.bad(exitUsage, "outside 1 to", "effects", "--limit", "0")
	_, errs := p.run(exitOK, "effect", "resolve", "pay", "pay/1", "done", "--dry-run")
	if !strings.Contains(errs, "with idempotency key "+list[0].ID) {
		t.Errorf("got %q", errs)
	}
	p.bad(exitNotFound, "no such rule", "effect", "unresolve", "pay", "pay/1", "-y")
	p.run(exitOK, "effect", "resolve", "pay", "pay/1", "done", "--result", "receipt 4711", "--author", "me", "--reason",
		"the bank's statement", "-y")
	_, errs = p.run(exitOK, "effect", "resolve", "pay", "pay/2", "repeat", "-y", "--wait", ample.Time.String())
	if !strings.Contains(errs, `effect "pay/2" is decided: repeat`) {
		t.Errorf("got %q", errs)
	}
	ample.Wait(t, "the leader does not carry out the first decision", func() bool {
		p.decode(&list, "effects", "pay")
		return len(list) == 2 && list[0].Key == "pay/2" && list[0].State == effect.Repeat && list[1].Key == "pay/3"
	})
	p.bad(exitRefused, "is done since", "effect", "resolve", "pay", "pay/1", "failed", "-y")
	stop()
	if outcome != nil {
		t.Error(outcome)
	}
	out, _ := p.run(exitOK, "items", "pay", "--prefix", "effect/e/pay/1")
	if !strings.Contains(out, "the bank's statement") || !strings.Contains(out, `"me"`) {
		t.Errorf("got %q", out)
	}
	if out, _ := p.run(exitOK, "rules"); !strings.Contains(out, "pay/1: done") {
		t.Errorf("got %q", out)
	}
	p.run(exitOK, "effect", "unresolve", "pay", "pay/1", "-y")
	if _, errs := p.run(exitOK, "effect", "resolve", "pay", "pay/3", "failed", "--dry-run", "--wait", "1h"); !strings.Contains(errs, "the next leader") {
		t.Errorf("got %q", errs)
	}
	if _, errs := p.run(exitOther, "effect", "resolve", "pay", "pay/3", "failed", "-y", "--wait", "300ms"); !strings.Contains(errs,
		"is not decided after 300ms") {
		t.Errorf("got %q", errs)
	}
	var said strings.Builder
	o := &order{a: &app{path: p.path, key: "tenure", timeout: limit, errs: &said}, wait: time.Minute}
	b, err := o.a.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	was, err := effect.Read(t.Context(), b, "pay", "pay/1")
	if err != nil {
		t.Fatal(err)
	}
	r := control.Rule{Shards: "pay", Effect: "pay/1", Outcome: control.OutcomeFailed, Began: was.Began}
	if err := o.awaitDecided(t.Context(), b, &r); codeOf(t.Context(), err) != exitRefused {
		t.Errorf("decided otherwise: %v", err)
	}
	if r.Began = r.Began.Add(1); codeOf(t.Context(), o.awaitDecided(t.Context(), b, &r)) != exitNotFound {
		t.Error("another effect with that key counts as decided")
	}
}
