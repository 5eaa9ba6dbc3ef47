package tenurehttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/observe/tenurehttp"
)

type counted struct {
	c     atomic.Pointer[effect.Counts]
	asked atomic.Int64
}

func (c *counted) counts() effect.Counts { c.asked.Add(1); return *c.c.Load() }

// TestEffects: the board and /view show how many effects wait, and update these numbers.
func TestEffects(t *testing.T) {
	t.Parallel()
	c, began := &counted{}, time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	c.c.Store(&effect.Counts{Begun: 9})
	h := tenurehttp.Handler(newChanging(sample()), &tenurehttp.Options{Effects: c.counts})
	s := serve(t, h)
	if n := c.asked.Load(); n != 0 {
		t.Errorf("asked %d times before anybody watched", n)
	}
	next := follow(t, s.URL)
	if e := next(nil).Effects; e == nil || e.InDoubt != 0 || len(e.Shards) != 0 || !e.Oldest.IsZero() {
		t.Errorf("at first: %+v", e)
	}
	c.c.Store(&effect.Counts{
		InDoubt: effect.Waiting{Number: 4, Oldest: began.Add(time.Hour)}, Unresolved: effect.Waiting{Number: 2, Oldest: began},
		Shards: []effect.ShardCounts{{Shard: "orders-1", InDoubt: 3}, {Shard: "orders-2", InDoubt: 1, Unresolved: 2}},
	})
	want := `{"in_doubt":4,"unresolved":2,"oldest":"2026-07-01T12:00:00Z","shards":[` +
		`{"shard":"orders-2","in_doubt":1,"unresolved":2},{"shard":"orders-1","in_doubt":3,"unresolved":0}]}`
	for name, got := range map[string]*tenurehttp.Effects{
		"the board": next(func(e event) bool { return e.Effects != nil }).Effects,
		"the view":  get[tenurehttp.View](t, h, "/view", 200).Effects,
	} {
		if text, err := json.Marshal(got); err != nil || string(text) != want {
			t.Errorf("%s: %s, %v, want %s", name, text, err, want)
		}
	}
	for range 3 { // unchanged data is not sent
		if e := next(nil).Effects; e != nil {
			t.Errorf("sent again: %+v", e)
		}
	}
	c.c.Store(&effect.Counts{})
	if e := next(func(e event) bool { return e.Effects != nil }).Effects; e.Unresolved != 0 || len(e.Shards) != 0 {
		t.Errorf("when none waits: %+v", e)
	}
	if v := get[tenurehttp.View](t, tenurehttp.Handler(newChanging(sample()), nil), "/view", 200); v.Effects != nil {
		t.Errorf("without Options.Effects: %+v", v.Effects)
	}
}

// TestEffectsHostile: despite 100,000 shards, long names, and impossible numbers and times, an
// answer stays short and valid.
func TestEffectsHostile(t *testing.T) {
	t.Parallel()
	for name, name1 := range map[string]func(i int) string{
		"long":    func(i int) string { return strings.Repeat("\u202e</script>", 1<<10) + fmt.Sprint(i) },
		"no text": func(int) string { return "\xff\x00__proto__" },
		"empty":   func(int) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &counted{}
			counts := effect.Counts{InDoubt: effect.Waiting{Number: math.MinInt, Oldest: time.Unix(1<<60, 0)},
				Unresolved: effect.Waiting{Number: math.MaxInt, Oldest: time.Unix(-1<<60, 0)}}
			for i := range 100_000 {
				counts.Shards = append(counts.Shards, effect.ShardCounts{Shard: name1(i % 10), InDoubt: i, Unresolved: i % 7})
			}
			c.c.Store(&counts)
			h := tenurehttp.Handler(newChanging(sample()), &tenurehttp.Options{Effects: c.counts})
			if e := follow(t, serve(t, h).URL)(nil); len(e.Effects.Shards) != 100 || !e.Effects.More || e.size > 256<<10 ||
				e.Effects.Shards[0].Unresolved != 6 || e.Effects.Shards[0].InDoubt < 99_990 || !e.Effects.Oldest.IsZero() {
				t.Errorf("%d bytes: %.500v", e.size, e.Effects)
			}
			if got := get[json.RawMessage](t, h, "/view", 200); len(got) > 256<<10 {
				t.Errorf("/view has %d bytes", len(got))
			}
		})
	}
}

// waiting makes one effect wait for a person until the effect is decided under the next lease.
func (p *world) waiting() {
	stats, leases := &effect.Stats{}, make(chan *core.Lease, 1)
	hold := func(ctx context.Context, l *core.Lease) error { leases <- l; <-ctx.Done(); return nil }
	x := p.startWith("a", hold, "eu")
	h := tenurehttp.Handler(x.Elector, &tenurehttp.Options{Effects: stats.Counts})
	waits := func() string {
		time.Sleep(2 * time.Second)
		e := get[tenurehttp.View](p.T, h, "/view", 200).Effects
		return fmt.Sprint(e.InDoubt, e.Unresolved, e.Shards)
	}
	var decided effect.Decision
	open := func() *effect.Ledger {
		ledger, err := effect.Open(p.Context(), <-leases, &effect.Options{Stats: stats, Logger: slog.New(slog.DiscardHandler),
			Resolve: func(context.Context, effect.Effect) (effect.Decision, error) { return decided, nil }})
		if err != nil {
			p.Fatal(err)
		}
		return ledger
	}
	ledger := open()
	if got := waits(); got != "0 0 []" {
		p.Errorf("before: %s", got)
	}
	_, err := ledger.Do(p.Context(), "pay/1", func(context.Context, string) ([]byte, error) { return nil, errors.New("no answer") })
	if got := waits(); !errors.Is(err, effect.ErrInDoubt) || got != "0 1 [{eu 0 1}]" {
		p.Errorf("%v, and then: %s", err, got)
	}
	ledger.Close()
	decided.State = effect.Done
	if err := errors.Join(x.Withdraw(p.Context(), "eu"), x.Contend(hold, "eu")); err != nil {
		p.Fatal(err)
	}
	ledger = open()
	defer ledger.Close()
	if got := waits(); got != "0 0 []" {
		p.Errorf("when it was decided: %s", got)
	}
}
