package effect

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
)

func (w *world) order(r control.Rule) {
	w.Helper()
	b, err := memory.Open(context.Background(), w.store, "test", nil)
	if err != nil {
		w.Fatal(err)
	}
	defer b.Close()
	op, err := control.Put(&r)
	if err != nil {
		w.Fatal(err)
	}
	err = core.RunSingleton(context.Background(), b, control.Shard, func(_ context.Context, l *core.Lease) error {
		_, err := l.Commit(l.Context(), op)
		return err
	}, &core.Options{Node: "tool", TTL: ttl, LockDir: "none", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.Fatal(err)
	}
}

// A ledger obeys the rules that its lease's elector reads, and logs who made a decision. The next
// leader knows the rules before it decides open effects, even if the store's reply is late.
func TestRulesOfTheLease(t *testing.T) { // not parallel, because it sets the default of slog
	var mu sync.Mutex
	var log bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	}), nil)))
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memory.New()}
		p := w.lead("a")
		l := p.open(Options{})
		keys := []string{"pay/1", "pay/2"}
		rules := map[string]control.Rule{}
		for _, key := range keys {
			if _, err := w.do(l, key, newProvider(false).lose(9)); !errors.Is(err, ErrInDoubt) {
				w.Error(err)
			}
			e, err := l.Lookup(context.Background(), key)
			if err != nil {
				w.Fatal(err)
			}
			rules[key] = control.Rule{Kind: control.Resolve, Shards: "pay", Effect: key, Outcome: control.OutcomeDone, Result: "found",
				Began: e.Began, At: now(), Author: "ann", Writer: "root@host", Reason: "the bank's statement"}
		}
		w.order(rules["pay/1"])
		time.Sleep(5 * ttl)
		if e, err := l.Lookup(context.Background(), "pay/1"); err != nil || e.State != Done || e.Author != "ann" {
			w.Errorf("decided by hand: %+v, %v", e, err)
		}
		l.Close()
		p.resign()
		w.order(rules["pay/2"])

		w.slowRules.Store(int64(ttl / 2))
		p = w.lead("b")
		if p.lease.Rules() != nil {
			t.Error("the rules are known before the ledger is opened: the test proves nothing")
		}
		l = p.open(Options{Repeatable: true})
		if out, err := w.do(l, "pay/2", never); out != "found" || err != nil {
			w.Errorf("decided by hand before the takeover: %q, %v", out, err)
		}
		l.Close()
		p.resign()

		// A member that cannot read the rules opens its ledger without rules.
		p = w.lead("c")
		l = p.open(Options{})
		if _, err := w.do(l, "pay/3", newProvider(false).lose(9)); !errors.Is(err, ErrInDoubt) {
			w.Error(err)
		}
		l.Close()
		p.resign()
		w.noRules.Store(true)
		p = w.lead("d")
		l = p.open(Options{Repeatable: true})
		if out, err := w.do(l, "pay/3", newProvider(false).pay("paid")); out != "paid" || err != nil {
			w.Errorf("without the rules: %q, %v", out, err)
		}
		l.Close()
		p.resign()
	})
	mu.Lock()
	defer mu.Unlock()
	want := `msg="tenure: effect decided by an operator" shard=pay key=pay/1 outcome=done author=ann writer=root@host reason="the bank's statement"`
	if text := log.String(); strings.Count(text, want) != 1 || strings.Count(text, "decided by an operator") != 2 {
		t.Errorf("logged: %s", text)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
