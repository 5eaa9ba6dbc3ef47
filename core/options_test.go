package core

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

func TestOptionsDefaults(t *testing.T) {
	t.Parallel()
	o, err := (*Options)(nil).resolve(Limits{PollPeriod: 40 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	want := Options{TTL: 10 * time.Second, Heartbeat: 10 * time.Second / 3, Jitter: 0.1, Margin: time.Second,
		DrainBudget: 10 * time.Second, BackoffMin: 500 * time.Millisecond, BackoffMax: 30 * time.Second,
		Resync: 100 * time.Second, CallTimeout: 10 * time.Second, RankDelay: 60 * time.Millisecond, Weight: 1}
	got := *o
	if got.Node == "" || got.Seed == 0 {
		t.Errorf("node %q, seed %d", got.Node, got.Seed)
	}
	if got.TTL != want.TTL || got.Heartbeat != want.Heartbeat || got.Jitter != want.Jitter || got.Margin != want.Margin ||
		got.DrainBudget != want.DrainBudget || got.BackoffMin != want.BackoffMin || got.BackoffMax != want.BackoffMax ||
		got.Resync != want.Resync || got.CallTimeout != want.CallTimeout || got.RankDelay != want.RankDelay || got.Weight != want.Weight {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for _, ttl := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second, time.Hour} {
		if err := (&Options{TTL: ttl}).Validate(Limits{}); err != nil {
			t.Errorf("defaults with a TTL of %v: %v", ttl, err)
		}
	}
}

func TestOptionsValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		o    Options
		says string
	}{
		{"negative", Options{DrainBudget: -1}, "DrainBudget"},
		{"TTL below floor", Options{TTL: 100 * time.Millisecond}, "raise"},
		{"TTL above a day", Options{TTL: 25 * time.Hour}, "24h"},
		{"margin too small", Options{Margin: time.Millisecond}, "Margin 1ms"},
		{"margin too large", Options{Margin: 4 * time.Second}, "Margin 4s"},
		{"heartbeat too slow", Options{Heartbeat: 5 * time.Second}, "Heartbeat 5s"},
		{"jitter", Options{Jitter: 0.6}, "Jitter 0.6"},
		{"jitter is no number", Options{Jitter: math.NaN()}, "Jitter NaN"},
		{"heartbeat without a pause", Options{Heartbeat: time.Nanosecond}, "Heartbeat 1ns"},
		{"time that would overflow", Options{DrainBudget: math.MaxInt64}, "DrainBudget"},
		{"back-off", Options{BackoffMin: time.Second, BackoffMax: time.Millisecond}, "BackoffMax 1ms"},
		{"resync", Options{Resync: time.Second}, "Resync 1s"},
		{"watchdog", Options{Watchdog: time.Microsecond}, "Watchdog"},
		{"trace without a directory", Options{TraceBytes: 1 << 30}, "TraceDir"},
		{"trace too small", Options{TraceDir: "x", TraceBytes: 1000}, "TraceBytes 1000"},
		{"supersede without node", Options{Supersede: true}, "Node"},
		{"node", Options{Node: "a/b"}, "node"},
		{"weight", Options{Weight: -1}, "weight -1"},
		{"meta", Options{Meta: map[string]string{"k": strings.Repeat("x", 3000)}}, "metadata"},
	} {
		err := c.o.Validate(Limits{MinTTL: 200 * time.Millisecond})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it to say %q", c.name, err, c.says)
		}
	}
}

func TestHostNode(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"db-1.example.com": "db-1.example.com", "": "node", "..": "node", "Müller's Mac": "M-ller-s-Mac",
		strings.Repeat("x", 300): strings.Repeat("x", 128),
	} {
		if got := sanitise(in); got != want {
			t.Errorf("sanitise(%q) = %q, want %q", in, got, want)
		}
	}
	if err := driver.CheckNode(hostNode()); err != nil {
		t.Error(err)
	}
}

func TestRevokedErrorMatches(t *testing.T) {
	t.Parallel()
	for c := fsm.CauseReleased; c <= fsm.CauseStoreChanged; c++ {
		err := error(revoked(Fence{Shard: "s", Token: 7}, c))
		given := c == fsm.CauseReleased || c == fsm.CauseReturned
		if !errors.Is(err, ErrLost) || errors.Is(err, ErrReleased) != given || !NotApplied(err) {
			t.Errorf("%v: lost %v, released %v", err, errors.Is(err, ErrLost), errors.Is(err, ErrReleased))
		}
	}
}
