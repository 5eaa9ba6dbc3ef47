package fsm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A member's heartbeats arrive but are never answered, while its reads are answered. After a lapse,
// the member stays silent for longer than its TTL, so that it can be evicted (C6), and tries again
// later. A member whose heartbeats are refused does not stay silent.
func TestUnansweredHeartbeatsGoSilent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		err   error
		quiet bool
	}{
		{"unanswered", context.DeadlineExceeded, true},
		{"refused", driver.ErrRetry, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const ttl = time.Second
			m := New(Config{
				Member:     driver.Member{Node: "n", TTL: ttl},
				NewSession: func() driver.SessionID { return "s1" },
				Interval:   ttl / 3, Margin: ttl / 10, DrainBudget: ttl, Resync: 30 * ttl, CallTimeout: ttl,
				RankDelay: 10 * time.Millisecond, BackoffMin: 100 * time.Millisecond, BackoffMax: ttl,
				WatchAll: 16, WatchFew: 3, Seed: 1,
			})
			scene := newScene()
			var beats []Instant
			type reply struct {
				at Instant
				in Input
			}
			var due []reply
			step := func(now Instant, in Input) {
				for _, e := range scene.step(m, now, in) {
					switch e.Kind {
					case EffJoin:
						due = append(due, reply{now, Input{Kind: InJoined, Call: e.Call}})
					case EffBeat:
						beats = append(beats, now)
						due = append(due, reply{now.Add(50 * time.Millisecond), Input{Kind: InBeaten, Call: e.Call, Err: c.err}})
					case EffRead:
						due = append(due, reply{now, Input{Kind: InRead, Call: e.Call}})
					case EffResync:
						due = append(due, reply{now, Input{Kind: InObserved, SentAt: now, View: &driver.View{Reset: true}}})
					case EffAcquire:
						due = append(due, reply{now.Add(ttl), Input{Kind: InAcquired, Call: e.Call, Err: c.err}})
					}
				}
			}
			step(0, Input{Kind: InWant, Shard: "a"})
			for now := Instant(0); now < Instant(20*ttl); {
				now = m.WakeAt()
				k := -1
				for i := range due {
					if due[i].at <= now {
						now, k = due[i].at, i
					}
				}
				in := Input{}
				if k >= 0 {
					in = due[k].in
					due = append(due[:k], due[k+1:]...)
				}
				step(now, in)
			}
			longest := Instant(0)
			for i := 1; i < len(beats); i++ {
				longest = max(longest, beats[i]-beats[i-1])
			}
			if quiet := longest > Instant(ttl); quiet != c.quiet {
				t.Errorf("longest silence between two of %d heartbeats is %v, TTL %v", len(beats), time.Duration(longest), ttl)
			}
			if last := beats[len(beats)-1]; last < Instant(17*ttl) {
				t.Errorf("no heartbeat after %v", time.Duration(last))
			}
		})
	}
}

// A bench is one machine and the calls that it made.
type bench struct {
	m     *Machine
	scene *scene
	now   Instant
	calls []Effect
	got   []Effect // of the last step
}

const benchTTL = 1200 * time.Millisecond

// newBench returns a bench that joined at instant 0, without any delay.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{scene: newScene(), m: New(Config{
		Member:     driver.Member{Node: "n", TTL: benchTTL},
		NewSession: func() driver.SessionID { return "me" },
		Interval:   benchTTL / 3, Margin: benchTTL / 10, DrainBudget: benchTTL, Resync: 30 * benchTTL, CallTimeout: benchTTL,
		RankDelay: 10 * time.Millisecond, BackoffMin: 100 * time.Millisecond, BackoffMax: benchTTL,
		WatchAll: 16, WatchFew: 3, Seed: 1,
	})}
	b.step(Input{Kind: InWant, Shard: "a"})
	b.step(Input{Kind: InJoined, Call: b.take(t, EffJoin)})
	return b
}

func (b *bench) step(in Input) {
	b.got = append([]Effect(nil), b.scene.step(b.m, b.now, in)...)
	for _, e := range b.got {
		if e.Call != 0 {
			b.calls = append(b.calls, e)
		}
	}
}

func (b *bench) pass(d time.Duration) {
	end := b.now.Add(d)
	for at := b.m.WakeAt(); at <= end; at = b.m.WakeAt() {
		b.now = max(b.now, at)
		b.step(Input{})
	}
	b.now = end
}

func (b *bench) made(kind EffectKind) (n int) {
	for _, e := range b.calls {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// take returns the oldest outstanding call of a kind. The caller answers it.
func (b *bench) take(t *testing.T, kind EffectKind) CallID {
	t.Helper()
	for i, e := range b.calls {
		if e.Kind == kind {
			b.calls = append(b.calls[:i], b.calls[i+1:]...)
			return e.Call
		}
	}
	t.Fatalf("no call of kind %d is outstanding", kind)
	return 0
}

// A silent server costs no lease. If a heartbeat is unanswered after TTL/12, another is sent,
// possibly over another connection (C4).
func TestSilentServerCostsNoLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pass(benchTTL / 3)
	b.take(t, EffBeat) // never answered
	b.pass(benchTTL / 12)
	b.step(Input{Kind: InBeaten, Call: b.take(t, EffBeat)})
	if b.m.until < b.now.Add(benchTTL-benchTTL/10-benchTTL/12) {
		t.Errorf("trusted until %v at %v", time.Duration(b.m.until), time.Duration(b.now))
	}
	b.pass(benchTTL / 4)
	if n := b.made(EffBeat); n != 0 {
		t.Errorf("%d heartbeats within TTL/4 of one that was answered at once, want none", n)
	}
}

// An answer that was in transit while the process was stopped does not show that the store is
// reachable now. Heartbeats wait for the answer to a later read.
func TestReadFromBeforeTheLapse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	asked := b.now
	b.now = b.now.Add(2 * benchTTL) // stopped
	b.step(Input{Kind: InObserved, SentAt: asked, View: &driver.View{Reset: true}})
	b.pass(benchTTL / 2)
	if n := b.made(EffBeat); n != 0 {
		t.Fatalf("%d heartbeats before a read was answered", n)
	}
	b.step(Input{Kind: InRead, Call: b.take(t, EffRead)})
	if b.made(EffBeat) != 1 {
		t.Errorf("%d heartbeats after a read was answered, want 1", b.made(EffBeat))
	}
}

// A read of the whole namespace may take longer than half a TTL. Its answer permits heartbeats from
// the answer's arrival on.
func TestSlowReadIsFresh(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pass(benchTTL) // nothing is answered
	asked := b.now
	b.pass(benchTTL * 6 / 10)
	before := b.made(EffBeat)
	b.step(Input{Kind: InObserved, SentAt: asked, View: &driver.View{Reset: true}})
	if n := b.made(EffBeat) - before; n != 1 {
		t.Errorf("%d heartbeats at the answer of a read that took 0.6 TTL, want 1", n)
	}
}

// If records give the same token to two sessions, the store forgot a grant (S14), regardless of the
// source of the records. A release keeps the token, but is not a grant.
func TestTokenOfTwoSessionsHalts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		first driver.Owner
		then  driver.Owner
		halts bool
	}{
		{"another session", driver.Owner{Session: "x", Token: 7}, driver.Owner{Session: "y", Token: 7}, true},
		{"released", driver.Owner{Session: "x", Token: 7}, driver.Owner{Token: 7}, false},
		{"late view", driver.Owner{Token: 7}, driver.Owner{Session: "x", Token: 7}, false},
		{"same", driver.Owner{Session: "x", Token: 7}, driver.Owner{Session: "x", Token: 7}, false},
		{"older", driver.Owner{Session: "x", Token: 7}, driver.Owner{Session: "y", Token: 6}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.step(Input{Kind: InObserved, View: &driver.View{Shards: []driver.ShardState{{Shard: "a", Owner: c.first}}}})
			b.step(Input{Kind: InObserved, View: &driver.View{Shards: []driver.ShardState{{Shard: "a", Owner: c.then}}}})
			var halted error
			for _, e := range b.got {
				if e.Kind == EffEvent && e.Event == EventHalted {
					halted = e.Err
				}
			}
			if halts := errors.Is(halted, driver.ErrStoreChanged); halts != c.halts {
				t.Errorf("halted with %v, want %v", halted, c.halts)
			}
			if b.m.Session() == "" != c.halts {
				t.Errorf("session %q", b.m.Session())
			}
		})
	}
}
