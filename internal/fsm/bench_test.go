package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// steady returns a joined machine that knows the given number of peers and holds the given number
// of shards.
func steady(tb testing.TB, peers, shards int) (m *Machine, now Instant) {
	tb.Helper()
	m = New(Config{
		Member:   driver.Member{Node: "n0", TTL: 10 * time.Second},
		Interval: 10 * time.Second / 3, Jitter: 0.1, Margin: time.Second,
		DrainBudget: time.Second, Resync: 1000 * time.Hour, CallTimeout: 10 * time.Second, RankDelay: 20 * time.Millisecond,
		BackoffMin: 50 * time.Millisecond, BackoffMax: time.Second, WatchAll: 16, WatchFew: 3, Seed: 1,
		NewSession: func() driver.SessionID { return "me" },
	})
	v := &driver.View{Reset: true}
	for i := range peers {
		v.Members = append(v.Members, driver.Member{Session: driver.SessionID(fmt.Sprintf("p%d", i)), Node: fmt.Sprintf("n%d", i), TTL: 1000 * time.Hour})
	}
	m.Step(0, Input{Kind: InWant, Shard: "s0"})
	m.Step(1, Input{Kind: InJoined, Call: m.joinCall})
	for i := range shards {
		name := driver.ShardID(fmt.Sprintf("s%d", i))
		m.Step(2, Input{Kind: InWant, Shard: name})
		v.Shards = append(v.Shards, driver.ShardState{Shard: name, Owner: driver.Owner{Session: "me", Token: driver.Token(i + 1)}})
	}
	granted := 0
	for _, e := range m.Step(3, Input{Kind: InObserved, SentAt: 2, View: v}) {
		if e.Kind == EffGrant {
			granted++
		}
	}
	if granted != shards {
		tb.Fatalf("granted %d of %d shards", granted, shards)
	}
	return m, 3
}

// beatOnce sends a heartbeat when it is due, and answers it.
func beatOnce(m *Machine) Instant {
	now := m.WakeAt()
	call := CallID(0)
	for _, e := range m.Step(now, Input{Kind: InWake}) {
		if e.Kind == EffBeat {
			call = e.Call
		}
	}
	if call != 0 {
		m.Step(now+1, Input{Kind: InBeaten, Call: call})
	}
	return now + 1
}

// BenchmarkStepBeat sends and answers one heartbeat, in two steps. The budget for each step is 1
// microsecond and no allocation.
func BenchmarkStepBeat(b *testing.B) {
	for _, shards := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			m, _ := steady(b, 4, shards)
			b.ReportAllocs()
			for b.Loop() {
				beatOnce(m)
			}
		})
	}
}

// BenchmarkStepUnchangedView reads a page that contains only the heartbeats of the watched members.
func BenchmarkStepUnchangedView(b *testing.B) {
	m, now := steady(b, 4, 1)
	m.until = Never / 2 // no heartbeat is due in this benchmark
	m.beatAt = Never / 2
	v := &driver.View{}
	for i := range 4 {
		v.Beats = append(v.Beats, driver.Beat{Session: driver.SessionID(fmt.Sprintf("p%d", i))})
	}
	b.ReportAllocs()
	for b.Loop() {
		now++
		for i := range v.Beats {
			v.Beats[i].Version++
		}
		m.Step(now, Input{Kind: InObserved, SentAt: now - 1, View: v})
	}
}

// TestStepsAllocateNothing: with any number of shards held, neither a heartbeat nor an unchanged
// view allocates.
func TestStepsAllocateNothing(t *testing.T) {
	m, _ := steady(t, 4, 1000)
	now := beatOnce(m)
	if n := testing.AllocsPerRun(100, func() { now = beatOnce(m) }); n != 0 {
		t.Errorf("a heartbeat allocates %v times", n)
	}
	v := &driver.View{Beats: []driver.Beat{{Session: "p0"}}}
	if n := testing.AllocsPerRun(100, func() {
		now++
		v.Beats[0].Version++
		m.Step(now, Input{Kind: InObserved, SentAt: now, View: v})
	}); n != 0 {
		t.Errorf("a page of heartbeats allocates %v times", n)
	}
}
