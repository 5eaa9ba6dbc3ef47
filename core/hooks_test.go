package core

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

// JoinHooks joins every kind of hook. Each joined hook gets the arguments.
func TestJoinHooks(t *testing.T) {
	t.Parallel()
	none := reflect.ValueOf(JoinHooks(Hooks{}, Hooks{}))
	for i := range none.NumField() {
		if name := none.Type().Field(i).Name; !none.Field(i).IsNil() {
			t.Errorf("%s: without hooks, the joined one is not nil", name)
		}
	}
	for i := range none.NumField() {
		field := none.Type().Field(i)
		var called []int
		hook := func(n int) Hooks {
			var h Hooks
			f := reflect.MakeFunc(field.Type, func(args []reflect.Value) []reflect.Value {
				called = append(called, n)
				if field.Type.NumOut() == 0 {
					return nil
				}
				return []reflect.Value{args[0], reflect.ValueOf(func(error) { called = append(called, -n) })}
			})
			reflect.ValueOf(&h).Elem().Field(i).Set(f)
			return h
		}
		joined := reflect.ValueOf(JoinHooks(hook(1), Hooks{}, hook(2))).Field(i)
		if joined.IsNil() {
			t.Errorf("%s is not joined", field.Name)
			continue
		}
		args := make([]reflect.Value, field.Type.NumIn())
		for k := range args {
			args[k] = reflect.Zero(field.Type.In(k))
		}
		if field.Type.NumOut() > 0 {
			args[0] = reflect.ValueOf(t.Context())
		}
		want := []int{1, 2}
		if out := joined.Call(args); len(out) > 0 {
			out[1].Call([]reflect.Value{reflect.Zero(reflect.TypeFor[error]())})
			want = []int{1, 2, -2, -1}
		}
		if !slices.Equal(called, want) {
			t.Errorf("%s called %v, want %v", field.Name, called, want)
		}
	}
}

type spanKey struct{}

// spans records the value that each call to the backend got from its caller, and checks that
// every call ended.
type spans struct {
	mu     sync.Mutex
	values map[string][]any // by kind
	others map[string]int
	open   int
}

func (s *spans) start(ctx context.Context, c Call) (context.Context, func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	s.values[c.Kind] = append(s.values[c.Kind], ctx.Value(spanKey{}))
	s.others[c.Kind] += len(c.Others)
	for _, o := range c.Others {
		s.values[c.Kind] = append(s.values[c.Kind], o.Value(spanKey{}))
	}
	return ctx, func(error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}
}

// A call to the store carries the context of its caller, and the contexts of all other callers
// whose commits it sends.
func TestCallStartHasTheCallersContext(t *testing.T) {
	bubble(t, func(w *world) {
		s := &spans{values: map[string][]any{}, others: map[string]int{}}
		m := w.member("a", func(o *Options) { o.Hooks.CallStart = s.start })
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		with := func(v any) context.Context { return context.WithValue(w.Context(), spanKey{}, v) }
		_, err := l.Append(with("append"), nil)
		w.must(err)
		_, err = l.Get(with("get"), "k")
		w.must(err)
		_, err = l.List(with("list"), "k", 0, 0)
		w.must(err)
		_, err = l.ReadLog(with("log"), 0, 1)
		w.must(err)
		m.link.Set(kvfault.Write, kvfault.HoldRequest) // later commits are sent together
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				_, err := l.Append(with(i), nil)
				w.must(err)
			})
			time.Sleep(time.Millisecond)
		}
		w.must(m.link.AwaitHeld(w.Context(), 1))
		m.link.Heal()
		wg.Wait()
		w.must(m.end())
		for kind, want := range map[string]any{callGet: "get", callList: "list", callReadLog: "log"} {
			if got := s.values[kind]; len(got) != 1 || got[0] != want {
				w.Errorf("%s: began with %v, want %v once", kind, got, want)
			}
		}
		for _, want := range []any{"append", 0, 1, 2} {
			if !slices.Contains(s.values[callCommit], want) {
				w.Errorf("no call of commit is known as %v's: %v", want, s.values[callCommit])
			}
		}
		if s.others[callCommit] != 1 || len(s.values[callBeat]) == 0 || s.open != 0 {
			w.Errorf("%d further callers, want 1; %d heartbeats; %d calls have no end",
				s.others[callCommit], len(s.values[callBeat]), s.open)
		}
	})
}

// Hooks report the duration of a hand-over and the former session of a takeover.
func TestHandOverAndTakeOverAreTold(t *testing.T) {
	bubble(t, func(w *world) {
		var settled, stops, grants []Event // each by one goroutine
		a := w.member("a", func(o *Options) {
			onEvent(o, func(e Event) { stops = append(stops, e) }, HandlerStopping)
			onEvent(o, func(e Event) { settled = append(settled, e) }, leaseOutcomes[:]...)
		})
		var ha, hb leases
		slow := func(ctx context.Context, l *Lease) error { ha.add(l); <-ctx.Done(); time.Sleep(ttl / 2); return nil }
		w.must(a.Contend(slow, "s", "t"))
		ha.await(w, 2)
		b := w.member("b", func(o *Options) {
			onEvent(o, func(e Event) { grants = append(grants, e) }, LeaseGranted)
		})
		w.must(b.Contend(hb.hold, "s", "t"))
		w.eventually("they know each other", func() bool { return len(a.View().Members) == 2 })
		time.Sleep(ttl)
		to, former := b.View().Session, a.View().Session
		w.must(a.HandOver(w.Context(), to, "s"))
		hb.await(w, 1)
		a.link.Cut()
		hb.await(w, 2)
		a.link.Heal()
		w.must(b.end())
		_ = a.end()
		if len(stops) == 0 || stops[0].Err != ErrHandOver || stops[0].Fence.Shard != "s" {
			w.Errorf("asked to stop: %+v", stops)
		}
		if len(settled) == 0 || settled[0].Kind != LeaseTransferred || settled[0].Session != to || settled[0].Took < ttl/2 {
			w.Errorf("settled: %+v", settled)
		}
		if len(grants) != 2 || grants[0].Session != "" || grants[1].Session != former {
			w.Errorf("grants: %+v, want the second from %s", grants, former)
		}
	})
}

// A view may show a takeover before the replies to the eviction and the claim arrive. The event of
// the grant still names the former session, and later moves do not displace the takeover from
// View.Moves.
func TestTakeOverSeenFirstIsTold(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.member("a")
		var grants []Event
		b := w.member("b", func(o *Options) { onEvent(o, func(e Event) { grants = append(grants, e) }, LeaseGranted) })
		b.tap.onReply(func(kind string, do func()) {
			do()
			if kind == callEvict || kind == callAcquire {
				time.Sleep(ttl / 4)
			}
		})
		var ha, hb leases
		w.must(a.Contend(ha.hold, "s"))
		ha.await(w, 1)
		w.must(b.Contend(hb.hold, "s"))
		w.eventually("they know each other", func() bool { return len(b.View().Members) == 2 })
		time.Sleep(ttl)
		former := a.View().Session
		a.link.Cut()
		hb.await(w, 1)
		time.Sleep(ttl)
		if got := b.said("peer a evicted"); len(got) != 1 {
			w.Errorf("b says of its eviction %q, want it once", got)
		}
		if len(grants) != 1 || grants[0].Session != former {
			w.Errorf("grants %+v, want one from %s", grants, former)
		}
		for i := range 2 * maxMoves {
			name := fmt.Sprintf("t%03d", i)
			w.must(b.Contend(hb.hold, name))
			hb.await(w, 2+i)
			w.must(b.Withdraw(w.Context(), name))
		}
		moves := b.View().Moves
		if m := moves[0]; m.Kind != LeaseGranted || m.Fence.Shard != "s" || m.Err == nil || !strings.Contains(m.Err.Error(), string(former)) {
			w.Errorf("the oldest move is %+v, want the takeover", m)
		}
		if len(moves) != maxMoves+1 || !slices.IsSortedFunc(moves, func(x, y Event) int { return x.At.Compare(y.At) }) {
			w.Errorf("%d moves, want %d in the order of time", len(moves), maxMoves+1)
		}
		w.must(b.end())
		_ = a.end()
	})
}

func TestCallsAllocateNothing(t *testing.T) {
	n := newNotifier(Hooks{OnCall: func(Call) {}}, nil, "a")
	n.queue = make([]notice, 0, 4096)
	ctx := t.Context()
	if got := testing.AllocsPerRun(1000, func() {
		_, call := n.startCall(ctx, callCommit, 1, "s", nil)
		call.done(nil)
	}); got != 0 {
		t.Errorf("%v allocations for each call, want none", got)
	}
}

// BenchmarkHooksCall measures the cost of hooks for each call to the store: a heartbeat or a
// commit.
func BenchmarkHooksCall(b *testing.B) {
	for name, h := range map[string]Hooks{
		"none": {}, "OnCall": {OnCall: func(Call) {}},
		"CallStart": {CallStart: func(ctx context.Context, _ Call) (context.Context, func(error)) { return ctx, nil }},
	} {
		b.Run(name, func(b *testing.B) {
			n := newNotifier(h, nil, "a")
			done := make(chan struct{})
			go func() { defer close(done); n.serve() }()
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				_, call := n.startCall(ctx, callCommit, 1, "s", nil)
				call.done(nil)
			}
			n.close()
			<-done
		})
	}
}

// BenchmarkHooksAppend measures the cost of hooks for an append to the in-memory store.
func BenchmarkHooksAppend(b *testing.B) {
	for name, h := range map[string]Hooks{"none": {}, "OnCall": {OnCall: func(Call) {}}} {
		b.Run(name, func(b *testing.B) {
			l := benchLeaseOf(b, &Options{Hooks: h})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Append(b.Context(), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Slow hooks do not change the time of an event.
func TestEventAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		n := newNotifier(Hooks{OnEvent: func(e Event) { time.Sleep(time.Minute); at = append(at, e.At) }}, nil, "a")
		done := make(chan struct{})
		go func() { defer close(done); n.serve() }()
		began := time.Now()
		n.event(Event{Kind: LeaseReleased})
		time.Sleep(time.Second)
		n.event(Event{Kind: LeaseReleased})
		n.close()
		<-done
		if want := []time.Time{began, began.Add(time.Second)}; !slices.EqualFunc(at, want, time.Time.Equal) {
			t.Errorf("events at %v, want %v", at, want)
		}
	})
}
