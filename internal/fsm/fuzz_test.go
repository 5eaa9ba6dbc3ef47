package fsm

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/mark"
)

// fuzzed drives one machine with inputs made from bytes. Some inputs are nonsense: replies to calls
// that were never made, results of wrong lengths, views of another world. fuzzed checks the
// properties that hold for all inputs.
type fuzzed struct {
	t     *testing.T
	data  []byte
	m     *Machine
	now   Instant
	ids   int
	calls []asked
	held  [3]driver.Fence
	open  [3]driver.Fence // granted, and not settled
	last  [3]driver.Token // of the last Grant
	until Instant
	seen  [EffEvent + 1]int // effects, by kind
}

func (f *fuzzed) byte() byte {
	if len(f.data) == 0 {
		return 0
	}
	b := f.data[0]
	f.data = f.data[1:]
	return b
}

func (f *fuzzed) pick(n int) int { return int(f.byte()) % n }

func (f *fuzzed) shard() driver.ShardID { return driver.ShardID('a' + byte(f.pick(3))) }

// session returns this machine's session, a peer's session, or an unknown one.
func (f *fuzzed) session() driver.SessionID {
	switch f.pick(5) {
	case 0, 1:
		return f.m.sess
	case 2:
		return "p1"
	case 3:
		return "p2"
	}
	return ""
}

func (f *fuzzed) owner() driver.Owner {
	return driver.Owner{Session: f.session(), Token: driver.Token(f.pick(40))}
}

func (f *fuzzed) fence() driver.Fence {
	return driver.Fence{Shard: f.shard(), Session: f.session(), Token: driver.Token(f.pick(40))}
}

func (f *fuzzed) err() error {
	if f.pick(4) != 0 {
		return nil
	}
	errs := [...]error{errTimeout, errTimeout, errTimeout, errNetwork, driver.ErrRetry, driver.ErrSessionLost,
		driver.ErrStoreChanged, driver.ErrHeld, driver.ErrFenced, driver.ErrNoTarget, driver.ErrConflict,
		&driver.HeldError{Owner: f.owner()}, &driver.FencedError{Current: f.owner()}, driver.ErrClosed}
	return errs[f.pick(len(errs))]
}

func (f *fuzzed) view() *driver.View {
	if f.pick(16) == 0 {
		return nil
	}
	v := &driver.View{Reset: f.pick(4) == 0}
	for range f.pick(3) {
		v.Members = append(v.Members, driver.Member{Session: f.session(), Node: "n", TTL: time.Duration(f.pick(3)) * 400 * time.Millisecond,
			MemberState: driver.MemberState{Update: driver.UpdateNo(f.pick(4)), Priority: int32(f.pick(3))}})
		if f.pick(3) == 0 {
			v.Members[len(v.Members)-1].Meta = map[string]string{mark.IneligibleKey: "ill"}
		}
	}
	for range f.pick(3) {
		v.Beats = append(v.Beats, driver.Beat{Session: f.session(), Version: driver.Version(f.pick(40))})
	}
	for range f.pick(3) {
		st := driver.ShardState{Shard: f.shard(), Owner: f.owner()}
		if st.Owner.Token%2 == 1 {
			st.Head = &driver.Head{Number: driver.WriteNo(st.Owner.Token)}
		}
		v.Shards = append(v.Shards, st)
	}
	if f.pick(6) == 0 {
		v.Gone = append(v.Gone, f.session())
	}
	return v
}

// input makes the next input. Most replies answer an outstanding call. As the runner promises,
// every call of the machine is answered at most once, but stale and invented replies occur as well.
func (f *fuzzed) input() Input {
	in := Input{Shard: f.shard(), SentAt: max(0, f.now-Instant(f.pick(8))*Instant(50*time.Millisecond))}
	switch f.pick(16) {
	case 0, 1:
		in.Kind = InWant
	case 2:
		in.Kind, in.To = InUnwant, f.session()
	case 3:
		in.Kind = [...]InputKind{InDrained, InDrained, InDrained, InStalled, InFenced}[f.pick(5)]
		in.Token, in.Owner = f.last[in.Shard[0]-'a'], f.owner()
		if f.pick(4) == 0 {
			in.Token = driver.Token(f.pick(40))
		}
	case 4, 5:
		in.Kind, in.View = InObserved, f.view()
	case 6:
		in.Kind = InputKind(f.byte() % 32) // anything, with any call
		in.Call = CallID(f.byte())
		if in.Kind == InObserved {
			in.View = f.view()
		}
		in.Err = f.err()
	case 7, 8, 9, 10, 11, 12:
		if len(f.calls) > 0 {
			f.answer(&in, f.pick(len(f.calls)))
		}
	case 13:
		in.Kind, in.State.Priority = InUpdate, int32(f.pick(3))
	case 14, 15:
		in.Kind, in.Reason = InEligible, [...]string{"", "ill", "late"}[f.pick(3)]
	}
	for range f.pick(4) {
		in.Results = append(in.Results, driver.AcquireResult{Fence: f.fence(), Err: f.err()})
		in.Evictions = append(in.Evictions, driver.EvictResult{Evicted: f.pick(2) == 0, Current: driver.Version(f.pick(9)), Err: f.err()})
	}
	return in
}

func (f *fuzzed) answer(in *Input, i int) {
	c := f.calls[i]
	f.calls = append(f.calls[:i], f.calls[i+1:]...)
	in.Kind, in.Call, in.Err = replyKind(c.kind), c.id, f.err()
	if c.kind != EffAcquire && c.kind != EffTransfer || in.Err != nil {
		return
	}
	for _, s := range c.shards {
		in.Results = append(in.Results, driver.AcquireResult{Fence: driver.Fence{Shard: s, Session: c.session, Token: driver.Token(f.pick(40))}})
	}
}

func (f *fuzzed) run() {
	for len(f.data) > 0 {
		switch f.pick(8) {
		case 0:
			f.now = f.now.Add(time.Duration(f.pick(64)) * 20 * time.Millisecond)
		case 1, 2:
			f.now = f.now.Add(time.Duration(f.pick(64)) * time.Millisecond)
		case 3, 4:
			if at := f.m.WakeAt(); at != Never {
				f.now = max(f.now, at)
			}
		}
		in := f.input()
		effects := f.m.Step(f.now, in)
		for i := range effects {
			f.effect(&effects[i])
		}
		f.after()
	}
}

func (f *fuzzed) effect(e *Effect) {
	sh := 0
	if e.Fence.Shard != "" {
		sh = int(e.Fence.Shard[0] - 'a')
	}
	f.seen[e.Kind]++
	switch e.Kind {
	case EffGrant:
		if f.held[sh] != (driver.Fence{}) || f.open[sh] != (driver.Fence{}) || e.Fence.Token <= f.last[sh] || e.Until <= f.now || e.Fence.Session != f.m.sess {
			f.t.Fatalf("grant of %v until %v at %v: held %v, last token %d", e.Fence, e.Until, f.now, f.held[sh], f.last[sh])
		}
		f.held[sh], f.open[sh], f.last[sh], f.until = e.Fence, e.Fence, e.Fence.Token, e.Until
	case EffRevoke:
		if f.held[sh] != e.Fence {
			f.t.Fatalf("revocation of %v: held %v", e.Fence, f.held[sh])
		}
		f.held[sh] = driver.Fence{}
	case EffSettled:
		if f.held[sh] == e.Fence || f.open[sh] != e.Fence || e.Outcome == 0 {
			f.t.Fatalf("%v is settled as %v: held %v, not settled %v", e.Fence, e.Outcome, f.held[sh], f.open[sh])
		}
		f.open[sh] = driver.Fence{}
	case EffExtend:
		if f.until <= f.now && f.held != [3]driver.Fence{} {
			f.t.Fatalf("extension of leases whose trust ended at %v, at %v", f.until, f.now)
		}
		f.until = e.Until
	case EffJoin, EffBeat, EffAcquire, EffTransfer, EffRelease, EffEvict, EffUpdate, EffRead, EffClose:
		if e.Timeout <= 0 || e.Session == "" {
			f.t.Fatalf("call without a time-out or a session: %s", showEffect(e))
		}
		c := asked{id: e.Call, kind: e.Kind, session: e.Session}
		for _, x := range e.Claims {
			c.shards = append(c.shards, x.Shard)
		}
		for _, x := range e.Transfers {
			c.shards = append(c.shards, x.Fence.Shard)
			f.given(x.Fence)
		}
		for _, x := range e.Fences {
			f.given(x)
		}
		f.calls = append(f.calls, c)
	}
}

func (f *fuzzed) given(x driver.Fence) {
	if f.held[x.Shard[0]-'a'] == x {
		f.t.Fatalf("%v is given away while it is held", x)
	}
}

func (f *fuzzed) after() {
	if f.held != [3]driver.Fence{} {
		if f.now >= f.until || !f.m.Trusted(f.now) || f.m.WakeAt() > f.until {
			f.t.Fatalf("at %v leases are held until %v, and the next wake is at %v", f.now, f.until, f.m.WakeAt())
		}
	}
	for _, x := range f.held {
		if x != (driver.Fence{}) && x.Session != f.m.Session() {
			f.t.Fatalf("%v is held under session %q", x, f.m.Session())
		}
	}
	spins := 0
	for f.m.WakeAt() <= f.now {
		if spins++; spins > 100 {
			f.t.Fatalf("the machine wants to be woken at %v again and again", f.now)
		}
		effects := f.m.Step(f.now, Input{Kind: InWake})
		for i := range effects {
			f.effect(&effects[i])
		}
	}
}

func newFuzzed(t *testing.T, data []byte) *fuzzed {
	f := &fuzzed{t: t, data: data}
	f.m = New(Config{
		Member:   driver.Member{Node: "n0", TTL: time.Second},
		Interval: time.Second / 3, Jitter: 0.1, Margin: 100 * time.Millisecond,
		DrainBudget: 200 * time.Millisecond, AbandonAfter: time.Duration(f.pick(2)) * 300 * time.Millisecond,
		Resync: 2 * time.Second, CallTimeout: time.Second, RankDelay: 20 * time.Millisecond,
		BackoffMin: 20 * time.Millisecond, BackoffMax: 500 * time.Millisecond,
		WatchAll: 1, WatchFew: 1, Seed: uint64(f.byte()), Failback: time.Duration(f.pick(2)) * 300 * time.Millisecond,
		NewSession: func() driver.SessionID { f.ids++; return driver.SessionID(fmt.Sprintf("me%d", f.ids)) },
	})
	return f
}

// corpus is the input from which the fuzzer starts.
func corpus() [][]byte {
	rng := rng(1)
	var out [][]byte
	for range 100 {
		b := make([]byte, 2000)
		for i := range b {
			b[i] = byte(rng.next())
		}
		out = append(out, b)
	}
	return out
}

// FuzzStep feeds any sequence of inputs to one machine. The machine does not panic, and its grants
// and revocations stay in order.
//
//	go test ./internal/fsm -run '^$' -fuzz FuzzStep -fuzzminimizetime 5x
func FuzzStep(f *testing.F) {
	for _, b := range corpus() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) { newFuzzed(t, data).run() })
}

// TestFuzzCorpusReachesEverything: every kind of effect occurs, because otherwise the fuzz target
// proves little.
func TestFuzzCorpusReachesEverything(t *testing.T) {
	t.Parallel()
	var seen [EffEvent + 1]int
	for _, b := range corpus() {
		f := newFuzzed(t, b)
		f.run()
		for k, n := range f.seen {
			seen[k] += n
		}
	}
	t.Logf("effects by kind: %v", seen)
	for k := EffJoin; k <= EffEvent; k++ {
		if seen[k] < 3 {
			t.Errorf("effects of kind %d: %d, want at least 3", k, seen[k])
		}
	}
}

// TestErrorsAreClosed: the errors that the fuzz target uses as unknown mean an unknown outcome.
func TestErrorsAreClosed(t *testing.T) {
	t.Parallel()
	for _, err := range []error{errTimeout, errNetwork, errors.Join(errTimeout)} {
		if !driver.Unknown(err) {
			t.Errorf("%v is of the closed set", err)
		}
	}
}
