package sharding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/sharding/assign"
)

// Members get even shares. A new member gets its share within an interval, with no more moves than
// needed. A member that leaves first hands over its shards.
func TestJoinAndLeave(t *testing.T) {
	bubble(t, func(w *world) {
		w.member("a")
		w.shares(ttl, map[string]int{"a": 30})
		w.member("b")
		w.shares(interval+50*time.Millisecond, map[string]int{"a": 15, "b": 15})
		before := w.owners()
		c := w.member("c")
		w.shares(interval+50*time.Millisecond, map[string]int{"a": 10, "b": 10, "c": 10})
		if n := moved(before, w.owners()); n != 10 {
			w.Errorf("%d shards moved for one join, want 10", n)
		}
		before = w.owners()
		if err := c.leaveNow(); err != nil {
			w.Error(err)
		}
		w.shares(20*time.Millisecond, map[string]int{"a": 15, "b": 15})
		if n := moved(before, w.owners()); n != 10 {
			w.Errorf("%d shards moved for one leave, want 10", n)
		}
		time.Sleep(5 * interval)
		if got := w.spread(); got["a"] != 15 || got["b"] != 15 {
			w.Errorf("shared %v later", got)
		}
	})
}

// Run runs a Manager and an Elector. The member serves shards, and hands them over when the context
// ends. Run returns the errors of the Manager and the Elector.
func TestRun(t *testing.T) {
	bubble(t, func(w *world) {
		open := func() *kv.Backend {
			b, err := memory.Open(w.Context(), w.store, "test", nil)
			if err != nil {
				w.Fatal(err)
			}
			return b
		}
		b := open()
		defer b.Close()
		ctx, stop := context.WithCancel(w.Context())
		served, ended := make(chan string), make(chan error, 1)
		serve := func(ctx context.Context, l *core.Lease) error {
			served <- l.Shard()
			<-ctx.Done()
			return nil
		}
		o := &Options{Shards: []string{"a", "b"}, Elector: &core.Options{Node: "n", LockDir: "none", TTL: ttl}}
		go func() { ended <- Run(ctx, b, serve, o) }()
		if got := []string{<-served, <-served}; !slices.Equal(slices.Sorted(slices.Values(got)), []string{"a", "b"}) {
			w.Errorf("served %v", got)
		}
		stop()
		if err := <-ended; err != nil {
			w.Errorf("stopped: %v", err)
		}
		closed := open()
		if err := closed.Close(); err != nil {
			w.Fatal(err)
		}
		if err := Run(w.Context(), closed, serve, o); !errors.Is(err, core.ErrClosed) {
			w.Errorf("with a closed backend: %v", err)
		}
		for name, o := range map[string]*Options{"no shards": nil, "TTL": {Shards: o.Shards, Elector: &core.Options{TTL: -1}}} {
			if err := Run(w.Context(), b, serve, o); !errors.Is(err, core.ErrInvalid) {
				w.Errorf("%s: %v", name, err)
			}
		}
	})
}

// After a crash, even of the assigner, heirs claim shards without waiting for a plan, and the next
// plan moves nothing.
func TestCrashGoesToTheHeirs(t *testing.T) {
	bubble(t, func(w *world) {
		for _, n := range []string{"a", "b", "c", "d"} {
			// The interval is so long that no plan is made in between.
			w.member(n, func(_ *member, o *Options) { o.Interval = 2 * time.Second; o.Penalty = time.Second })
		}
		for from := time.Now(); len(w.owners()) < 30 || w.members[0].assigned().number == 0 || !even30(w.spread(), 4); {
			if time.Since(from) > time.Minute {
				w.Fatalf("shared %v", w.spread())
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		o, _ := w.members[0].e.View().Owner(assigner)
		dead := w.members[0]
		for _, m := range w.members {
			if m.e.View().Session == o.Session {
				dead = m
			}
		}
		before := w.owners()
		from := time.Now()
		dead.link.Cut()
		for {
			time.Sleep(time.Millisecond)
			if got := w.spread(); got[""] == 0 && got[dead.node] == 0 {
				break
			}
			if time.Since(from) > 5*ttl {
				w.Fatalf("shared %v after the assigner's death", w.spread())
			}
		}
		if took := time.Since(from); took > ttl+100*time.Millisecond {
			w.Errorf("the heirs took over after %v, want about the TTL", took)
		}
		if got := w.spread(); !even30(got, 3) {
			w.Errorf("the heirs left it uneven: %v", got)
		}
		dead.crash()
		after := w.owners()
		time.Sleep(20 * time.Second)
		if n := moved(after, w.owners()); n != 0 {
			w.Errorf("the plan moved %d shards after the heirs", n)
		}
		for s, o := range before {
			if o != dead.node && after[s] != o {
				w.Errorf("%s moved from %s, which lives, to %s", s, o, after[s])
			}
		}
	})
}

func even30(got map[string]int, members int) bool {
	if len(got) != members {
		return false
	}
	for _, n := range got {
		if n < 30/members || n > (30+members-1)/members {
			return false
		}
	}
	return true
}

// A handler that does not return delays only its own shard.
func TestStuckDrainDelaysNobody(t *testing.T) {
	bubble(t, func(w *world) {
		free := make(chan struct{})
		a := w.member("a", func(m *member, _ *Options) {
			m.handler = func(ctx context.Context, l *core.Lease) error {
				if l.Shard() == "orders-29" || l.Shard() == "orders-00" {
					<-ctx.Done()
					<-free
					return nil
				}
				return m.hold(ctx, l)
			}
		})
		w.shares(ttl, map[string]int{"": 2, "a": 28})
		w.member("b")
		// One or both of the stuck shards may be among the shards that move.
		from := time.Now()
		for w.spread()["b"] < 13 {
			if time.Since(from) > 2*interval {
				w.Fatalf("shared %v", w.spread())
			}
			time.Sleep(time.Millisecond)
		}
		// When a member leaves, all shards except the stuck shards move, and Run names the stuck
		// shards.
		a.stop()
		err := <-a.ran
		var stuck *core.StuckError
		if !errors.As(err, &stuck) || len(stuck.Shards) == 0 {
			w.Errorf("Run: %v, want a StuckError", err)
		}
		if got := w.spread(); got["a"] != 0 {
			w.Errorf("shared %v", got)
		}
		close(free)
		a.end()
		<-a.ended
		a.gone = true
		a.b.Close()
		w.shares(2*ttl, map[string]int{"b": 30})
	})
}

// Before a member hands its shards over to leave, it publishes once that it is draining, for the
// Manager and the Elector together.
func TestLameDuck(t *testing.T) {
	bubble(t, func(w *world) {
		w.lameDuck = 10 * ttl
		a := w.member("a")
		w.member("b")
		w.shares(10*ttl, map[string]int{"a": 15, "b": 15})
		begun := time.Now()
		a.stop()
		time.Sleep(9 * ttl)
		synctest.Wait()
		if v := a.e.View(); !v.Leaving || w.spread()["a"] != 15 {
			w.Errorf("before the lame-duck period ended: leaving %v, shared %v", v.Leaving, w.spread())
		}
		if err := <-a.ran; err != nil || w.spread()["a"] != 0 {
			w.Errorf("Run: %v, shared %v", err, w.spread())
		}
		a.end()
		if err := <-a.ended; err != nil {
			w.Error(err)
		}
		if took := time.Since(begun); took < 10*ttl || took > 15*ttl {
			w.Errorf("stopped after %v, want the lame-duck period once", took)
		}
		a.gone = true
		a.b.Close()
	})
}

// If a handler keeps failing on one member, the member's shards move elsewhere, and not back and
// forth.
func TestFailingHandlerIsPunished(t *testing.T) {
	bubble(t, func(w *world) {
		w.member("a")
		w.shares(ttl, map[string]int{"a": 30})
		tries := 0
		w.member("b", func(m *member, _ *Options) {
			m.handler = func(context.Context, *core.Lease) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				tries++
				return errors.New("no disk")
			}
		})
		time.Sleep(time.Minute)
		w.shares(2*ttl, map[string]int{"a": 30})
		// The member tries a shard because of an assignment or, rarely, as a standby.
		if tries == 0 || tries > 600 {
			w.Errorf("b was granted a shard %d times in a minute", tries)
		}
		w.Logf("b was granted a shard %d times in a minute", tries)
	})
}

// Without an assigner, members share the shards by rank. With an assigner, members share the shards
// according to the plan.
func TestWithoutAssigner(t *testing.T) {
	bubble(t, func(w *world) {
		// Another process holds the assigner's shard, but does not plan.
		b, err := memory.Open(w.Context(), w.store, "test", nil)
		if err != nil {
			w.Fatal(err)
		}
		idle, err := core.NewElector(b, &core.Options{Node: "idle", TTL: ttl})
		if err != nil {
			w.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- idle.Run(ctx) }()
		defer func() { stop(); <-ended; b.Close() }()
		if err := idle.Contend(func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }, assigner); err != nil {
			w.Fatal(err)
		}
		time.Sleep(ttl)
		takes := func(_ *member, o *Options) { o.Takes = func(m core.Member) bool { return m.Node != "idle" } }
		for _, n := range []string{"a", "b"} {
			w.member(n, takes)
		}
		time.Sleep(3 * ttl)
		got := w.spread()
		if got[""] != 0 {
			w.Fatalf("shared %v without an assigner", got)
		}
		if err := w.members[0].leaveNow(); err != nil {
			w.Error(err)
		}
		w.shares(ttl, map[string]int{"b": 30})
		if err := idle.Withdraw(w.Context(), assigner); err != nil {
			w.Error(err)
		}
		c := w.member("c", takes)
		w.shares(2*interval, map[string]int{"b": 15, "c": 15})
		if c.assigned().number == 0 {
			w.Error("c knows no plan")
		}
	})
}

// Drain empties a member that stays. When the drain ends, the member gets its share again.
func TestDrainAndBack(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.member("a"), w.member("b")
		w.shares(2*ttl, map[string]int{"a": 15, "b": 15})
		before := w.owners()
		a.Drain(true)
		<-a.Emptied()
		w.shares(interval, map[string]int{"b": 30})
		time.Sleep(20 * interval)
		w.shares(0, map[string]int{"b": 30})
		a.Drain(false)
		w.shares(10*interval, map[string]int{"a": 15, "b": 15})
		if n := moved(before, w.owners()); n != 0 {
			w.Errorf("%d shards are elsewhere after a drain and back", n)
		}
	})
}

// Any number of members may drain at the same time, and no record of the drain is left.
func TestManyDrainAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		for i := range 20 {
			w.member(fmt.Sprintf("n%02d", i))
		}
		time.Sleep(20 * interval)
		for _, m := range w.members[2:] {
			m.Drain(true)
		}
		w.shares(3*interval, map[string]int{"n00": 15, "n01": 15})
		for _, m := range w.members[2:] {
			<-m.Emptied()
		}
		for _, o := range w.members[0].e.View().Shards {
			if o.Shard[0] == '_' && o.Shard != assigner {
				w.Errorf("shard %s was made", o.Shard)
			}
		}
	})
}

// A drained member stays drained when its session is lost, until Drain(false).
func TestDrainOutlivesTheSession(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a"), w.member("b")
		w.shares(2*ttl, map[string]int{"a": 15, "b": 15})
		a.Drain(true)
		<-a.Emptied()
		session := a.e.View().Session
		a.link.Cut()
		for len(b.e.View().Members) > 1 {
			time.Sleep(interval)
		}
		a.link.Heal()
		time.Sleep(5 * ttl)
		if got := a.e.View().Session; got == session {
			w.Fatalf("a is session %q although it was evicted", got)
		}
		w.shares(0, map[string]int{"b": 30})
		a.Drain(false)
		w.shares(10*interval, map[string]int{"a": 15, "b": 15})
	})
}

// A Manager takes shards even if an earlier Manager has left on the same Elector.
func TestManagerAgain(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.member("a"), w.member("b")
		w.shares(2*ttl, map[string]int{"a": 15, "b": 15})
		a.stop()
		if err := <-a.ran; err != nil {
			w.Fatal(err)
		}
		w.shares(0, map[string]int{"b": 30})
		var err error
		if a.Manager, err = NewManager(a.b, a.e, a.hold, a.o); err != nil {
			w.Fatal(err)
		}
		var manage context.Context
		manage, a.stop = context.WithCancel(context.Background())
		go func() { a.ran <- a.Run(manage) }()
		w.shares(10*interval, map[string]int{"a": 15, "b": 15})
	})
}

// The shares follow weights that change at run time. A member that marks itself as draining is
// emptied.
func TestUpdateMovesShards(t *testing.T) {
	bubble(t, func(w *world) {
		_, b := w.member("a"), w.member("b")
		w.shares(2*ttl, map[string]int{"a": 15, "b": 15})
		for _, c := range []struct {
			change func(*core.MemberState)
			want   map[string]int
		}{
			{func(st *core.MemberState) { st.Weight = 2 }, map[string]int{"a": 10, "b": 20}},
			{func(st *core.MemberState) { st.Draining = true }, map[string]int{"a": 30}},
			{func(st *core.MemberState) { st.Draining, st.Weight = false, 1 }, map[string]int{"a": 15, "b": 15}},
		} {
			if err := b.e.Update(w.Context(), c.change); err != nil {
				w.Fatal(err)
			}
			w.shares(10*interval, c.want)
		}
	})
}

// If an assigner dies after it has written half a plan, only the next assigner's plan takes effect
// (W3).
func TestHalfWrittenPlan(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.member("a")
		w.shares(ttl, map[string]int{"a": 30})
		time.Sleep(2 * interval)
		o, _ := a.e.View().Owner(assigner)
		number := a.assigned().number
		// This is the first of two parts of a plan that takes all shards from their owners.
		c := &planChange{Number: number + 1, Gone: []int32{0}}
		parts := c.encode(4)
		if len(parts) < 2 {
			w.Fatal("the plan has one part")
		}
		s := lastSession(w, a)
		head, err := a.b.ReadLog(w.Context(), assigner, 0, 0)
		if err != nil {
			w.Fatal(err)
		}
		res, err := s.Commit(w.Context(), []driver.Write{{
			Fence: core.Fence{Shard: assigner, Session: o.Session, Token: o.Token}, Number: head.Head.Number + 1, Nonce: 1,
			Ops: []core.Op{core.Append(parts[0])},
		}})
		if err != nil || res[0].Err != nil {
			w.Fatal(err, res)
		}
		b := w.member("b")
		a.crash()
		w.shares(5*ttl, map[string]int{"b": 30})
		time.Sleep(5 * interval)
		if got := b.assigned().number; got <= number {
			w.Errorf("plan %d after plan %d", got, number)
		}
		for _, at := range b.Assignments() {
			if at.Owner.Node != "b" {
				w.Errorf("%s is assigned to %q", at.Shard, at.Owner.Node)
			}
		}
	})
}

// lastSession returns another session on the member's backend, because the store checks the fence
// and not the sender.
func lastSession(w *world, m *member) driver.Session {
	s, err := m.b.Join(w.Context(), core.Member{Session: "0123", Node: "forger", TTL: time.Hour})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {})
	if err := s.Close(w.Context()); err != nil {
		w.Fatal(err)
	}
	return s
}

// A member that leaves checks which shards it has at that time. It overlooks neither a shard that
// was granted since the last view, nor a shard whose withdrawal has begun but not ended.
func TestLeaveLooksAgain(t *testing.T) {
	bubble(t, func(w *world) {
		free := make(chan struct{})
		m := w.build("a", func(m *member, _ *Options) {
			m.handler = func(ctx context.Context, _ *core.Lease) error {
				<-ctx.Done()
				<-free
				return nil
			}
		})
		views := make(chan *core.View)
		ctx, leave := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- m.loop(ctx, views, nil) }()
		views <- m.e.View() // from before the first contention; there is no later view
		time.Sleep(ttl)
		if n := len(m.e.View().Leases); n < 30 {
			w.Fatalf("%d leases", n)
		}
		leave()
		time.Sleep(ttl)
		select {
		case err := <-ran:
			w.Errorf("it has left with %d leases: %v", len(m.e.View().Leases), err)
			ran <- err
		case <-m.Emptied():
			w.Errorf("it is said to be empty with %d leases", len(m.e.View().Leases))
		default:
		}
		close(free)
		if err := <-ran; err != nil {
			w.Error(err)
		}
		m.ran <- nil
	})
}

// The assigner reports progress to the watchdog.
func TestWatchdog(t *testing.T) {
	bubble(t, func(w *world) {
		w.watchdog = 3 * interval
		for _, n := range []string{"a", "b"} {
			w.member(n, func(m *member, o *Options) {
				o.Loads = func(context.Context) (map[string]float64, error) { return nil, nil }
				m.handler = func(ctx context.Context, l *core.Lease) error {
					w.enter(m.node, l)
					defer w.leave(m.node, l)
					for pause(ctx, interval) {
						l.Progress()
					}
					return nil
				}
			})
		}
		w.shares(2*ttl, map[string]int{"a": 15, "b": 15})
		tokens := func() map[string]core.Token {
			out := map[string]core.Token{}
			for _, o := range w.members[1].e.View().Shards {
				if o.Shard[0] == '_' && o.Session != "" {
					out[o.Shard] = o.Token
				}
			}
			return out
		}
		w.members[1].Drain(true)
		<-w.members[1].Emptied()
		time.Sleep(5 * interval)
		before := tokens()
		time.Sleep(100 * interval)
		if after := tokens(); len(before) != 1 || !maps.Equal(before, after) {
			w.Errorf("the leases were %v, and are %v", before, after)
		}
	})
}

// The reply to an assigner's read is lost, and the assigner gets no other news. It repeats the
// read, and plans.
func TestAssignerAsksAgain(t *testing.T) {
	bubble(t, func(w *world) {
		noErr := func(_ *member, o *Options) { o.Logger = nil }
		w.member("a", noErr)
		w.shares(ttl, map[string]int{"a": 30})
		b := w.member("b", noErr)
		w.shares(2*interval, map[string]int{"a": 15, "b": 15})
		b.link.Set(kvfault.Read, kvfault.DropReply)
		w.members[0].crash() // this member is the assigner, because it was alone
		w.shares(3*ttl, map[string]int{"b": 30})
		b.link.Heal() // earlier requests are not answered
		w.member("c", noErr)
		w.shares(2*callTimeout, map[string]int{"b": 15, "c": 15})
	})
}

// An owner that learns of its leases after it learned of a plan that moves them may not follow that
// plan. The assigner writes the moves again, although no view changes.
func TestMovesAreWrittenAgain(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.build("a")
		views, failed := make(chan *core.View), make(chan error, 1)
		var manage context.Context
		manage, a.stop = context.WithCancel(context.Background())
		go func() { a.ran <- a.loop(manage, views, failed) }()
		views <- a.e.View() // from before the first contention; there is no later view
		read := func(owners int) {
			plans, err := readTable(context.Background(), a.b)
			if err != nil {
				w.Fatal(err)
			}
			if n := len(slices.Compact(slices.Sorted(slices.Values(plans.owner)))); n != owners {
				w.Fatalf("plan %d has %d owners, want %d", plans.number, n, owners)
			}
			a.setTable(plans)
			synctest.Wait()
		}
		w.shares(ttl, map[string]int{"a": 30})
		read(1)
		w.member("b")
		time.Sleep(2 * interval)
		read(2)
		work, stop := context.WithCancel(context.Background())
		var parts sync.WaitGroup
		parts.Go(func() { a.watch(work, views, failed) })
		parts.Go(func() { a.follow(work) })
		defer parts.Wait()
		defer stop()
		w.shares((lost+1)*a.o.Penalty, map[string]int{"a": 15, "b": 15})
	})
}

// Even if replies are lost and the log is read late, no shard is forgotten (W1).
func TestFlakyLinks(t *testing.T) {
	bubble(t, func(w *world) {
		for _, n := range []string{"a", "b", "c"} {
			w.member(n, func(_ *member, o *Options) { o.Logger = nil })
		}
		for range 12 {
			for i, f := range []kvfault.Fault{kvfault.DropReply, kvfault.DropRequest, kvfault.None} {
				w.members[i].link.Set(kvfault.All, f)
			}
			time.Sleep(ttl / 3)
			for _, m := range w.members {
				m.link.Heal()
			}
			w.members = append(w.members[1:3:3], append(w.members[:1:1], w.members[3:]...)...)
			time.Sleep(ttl / 2)
		}
		from := time.Now()
		for !even30(w.spread(), 3) {
			if time.Since(from) > 100*ttl {
				w.state()
				w.Fatalf("shared %v", w.spread())
			}
			time.Sleep(10 * time.Millisecond)
		}
		w.Logf("even again after %v", time.Since(from))
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		o    *Options
		want string
	}{
		{nil, "Shards"},
		{&Options{Shards: []string{"a", "a"}}, "twice"},
		{&Options{Shards: []string{"a-0..199999"}}, "at most 199999"},
		{&Options{Shards: []string{"_a"}}, "Tenure's own"},
		{&Options{Shards: []string{"a-9..1"}}, "smaller number first"},
		{&Options{Shards: []string{"a-0..9999999"}}, "at most"},
		{&Options{Shards: []string{"a/b"}}, "shard"},
		{&Options{Shards: []string{"a"}, Interval: -1}, "Interval"},
		{&Options{Shards: []string{"a"}, Interval: 1}, "Interval"},
		{&Options{Shards: []string{"a"}, Penalty: -1}, "Penalty"},
		{&Options{Shards: []string{"a"}, Balance: assign.Balance{High: 2}, Assigner: assign.Balance{}}, "no effect"},
		{&Options{Shards: []string{"a"}, Balance: assign.Balance{MovesPerMinute: -1}}, "Balance.MovesPerMinute -1"},
		{&Options{Shards: []string{"a"}, Balance: assign.Balance{SplitAbove: math.NaN()}}, "Balance.SplitAbove NaN"},
		{&Options{Shards: []string{"a"}, Balance: assign.Balance{Budget: -1}}, "Balance.Budget -1"},
		{&Options{Shards: []string{"a"}, Balance: assign.Balance{Low: 0.5}}, "Balance.Low 0.5"},
		{&Options{Shards: []string{"a"}, Balance: assign.Balance{High: 1.2, Low: 1.3}}, "no Low above High"},
		{&Options{Shards: []string{"a"}, Balance: assign.Balance{MinShards: 9, MaxShards: 8}}, "Balance.MinShards 9"},
		{&Options{Shards: []string{"a"}, Balance: assign.Balance{Reserve: 2}}, "Balance.Reserve 2"},
		{&Options{Shards: []string{"a"}, Assigner: assign.Balance{Rules: assign.Rules{Pin: map[string]string{"a/*": "n"}}}}, `Rules.Pin names "a/*"`},
		{&Options{Shards: []string{"a"}, Balance: assign.Balance{Rules: assign.Rules{Exclude: map[string][]string{"": nil}}}}, `Rules.Exclude names ""`},
		{&Options{Shards: []string{"a"}, Balance: assign.Balance{Rules: assign.Rules{Prefer: map[string]string{"*a": "z"}}}}, `Rules.Prefer names "*a"`},
	} {
		_, _, err := x.o.resolve()
		if !errors.Is(err, core.ErrInvalid) || !strings.Contains(fmt.Sprint(err), x.want) {
			t.Errorf("%+v: %v, want %q", x.o, err, x.want)
		}
	}
	names, err := keyspace.Expand("orders-0000..1023", "billing")
	if err != nil || len(names) != 1025 || names[0] != "billing" || names[1024] != "orders-1023" || names[1] != "orders-0000" {
		t.Errorf("%d names, %v", len(names), err)
	}
}
