package conformance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Guard is a fence that a backend provides in addition to Commit. A Guard protects the
// application's own writes to the same store (F1).
type Guard struct {
	// Name is the name of the method that provides the fence, such as "FenceTx".
	Name string

	// Waits reports whether a change of owner waits for writes in progress.
	Waits bool

	// Begin prepares a fenced write through b, which Store opened, and returns the function that
	// makes the write. That function adds a text to the application's data, in the step in which
	// the store checks the fence. The suite calls it at most once. If ctx ends before the write is
	// sent, the write is abandoned. If the fence refuses the write, an error from either function
	// matches driver.ErrFenced. If nothing is written for another reason, the error matches another
	// error of the closed set (E1).
	Begin func(ctx context.Context, b driver.Backend, fence driver.Fence) (write func(ctx context.Context, text string) error, err error)

	// Texts returns the texts that have been written.
	Texts func(ctx context.Context) ([]string, error)
}

func fenceCases() []testCase {
	return []testCase{
		guarded("AcceptedWhileCurrent", []rule{ruleF1}, "a guarded write takes effect under the shard's latest grant, and under no other",
			acceptedWhileCurrent),
		refusedAfter("Takeover", "a takeover", func(f *fixture, a, b *member, fence driver.Fence) {
			f.evict(a)
			b.acquire(fence.Shard)
		}),
		refusedAfter("Release", "a release", func(_ *fixture, a, _ *member, fence driver.Fence) { a.release(fence) }),
		refusedAfter("Transfer", "a transfer", func(f *fixture, a, b *member, fence driver.Fence) {
			f.setup("transfer", a.transfer(fence, b.ID()).Err)
		}),
		refusedAfter("Preempt", "a preemption", func(_ *fixture, _, b *member, fence driver.Fence) { b.preempt(fence.Shard) }),
		refusedAfter("Close", "its session was closed and the shard taken", func(f *fixture, a, b *member, fence driver.Fence) {
			f.setup("close", a.Close(f.ctx))
			b.acquire(fence.Shard)
		}),
		refusedAfter("NewLease", "its session released the shard and took it again", func(_ *fixture, a, _ *member, fence driver.Fence) {
			a.release(fence)
			a.acquire(fence.Shard)
		}),
		guarded("BegunBeforeTakeover", []rule{ruleF1}, "a write begun under a fence is refused after a takeover, or the takeover waits",
			begunBeforeTakeover),
		guarded("RacesTakeover", []rule{ruleF1}, "guarded writes that race a change of owner take effect before it or never",
			guardedRacesTakeover),
		guarded("ForkedStore", []rule{ruleF1, ruleI2}, "no lease of before a failover that lost grants passes",
			guardedForkedStore, "Snapshot", "Fork"),
		{Area: "Fence", Property: "RestoreOlderStore", Rules: []rule{ruleF1, ruleI1}, Needs: []string{"Snapshot", "Guards"},
			run:   guardedRestoredStore,
			Shows: "a process that found that an older copy was restored has no guarded write accepted"},
		guarded("RaisedFloor", []rule{ruleF1, ruleI1}, "a fence that no longer commits after the floor was raised passes nowhere",
			guardedRaisedFloor, "RaiseFloor"),
	}
}

// guard is one of the store's guards in a case.
type guard struct {
	*fixture
	Guard
	shard driver.ShardID // each guard of a case has a different shard
}

// guarded returns a case that runs once for each guard.
func guarded(property string, rules []rule, shows string, run func(g *guard), needs ...string) testCase {
	return testCase{Area: "Fence", Property: property, Rules: rules, Shows: shows, Needs: append(needs, "Guards"),
		run: func(f *fixture) {
			for _, g := range f.store.Guards {
				run(&guard{f, g, driver.ShardID("by-" + g.Name)})
			}
		}}
}

func (g *guard) once(m *member, fence driver.Fence, text string) error {
	ctx, cancel := context.WithCancel(g.ctx)
	defer cancel()
	write, err := g.Begin(ctx, m.b, fence)
	if err != nil {
		return err
	}
	return write(ctx, text)
}

func (g *guard) write(m *member, fence driver.Fence, text string) (err error) {
	g.retry(func() error {
		err = g.once(m, fence, text)
		return err
	})
	return err
}

func (g *guard) texts() []string {
	g.t.Helper()
	texts, err := g.Texts(g.ctx)
	g.setup("read what guarded writes wrote", err)
	return texts
}

func (g *guard) accepts(m *member, fence driver.Fence, when string) {
	g.t.Helper()
	text := string(newID())
	err := g.write(m, fence, text)
	g.must(ruleF1, err == nil, "%s of %s %s answers %v", g.Name, m.node, when, err)
	g.must(ruleF1, slices.Contains(g.texts(), text), "%s of %s %s was accepted, and nothing is written", g.Name, m.node, when)
}

func (g *guard) refuses(m *member, fence driver.Fence, when string, want ...error) {
	g.t.Helper()
	text := string(newID())
	err := g.write(m, fence, text)
	g.must(ruleF1, err != nil && !slices.Contains(g.texts(), text), "%s of %s %s was accepted, under token %d", g.Name, m.node, when,
		fence.Token)
	for _, w := range append(want, driver.ErrFenced) {
		if errors.Is(err, w) {
			return
		}
	}
	g.fail(ruleF1, "%s of %s %s answers %v; want ErrFenced", g.Name, m.node, when, err)
}

func acceptedWhileCurrent(g *guard) {
	a, b := g.join("a"), g.join("b")
	b.acquire("before-" + g.shard)
	fence := a.acquire(g.shard)
	for range 2 {
		for _, m := range []*member{a, b} {
			g.accepts(m, fence, "under the current grant")
		}
		a.commit(fence, appendOp("x"))
		a.beat()
	}
	other := driver.ShardID("other-" + g.Name)
	for what, wrong := range map[string]driver.Fence{
		"with another session":       {Shard: g.shard, Session: b.ID(), Token: fence.Token},
		"with part of a session":     {Shard: g.shard, Session: fence.Session[:1], Token: fence.Token},
		"with a lower token":         {Shard: g.shard, Session: a.ID(), Token: fence.Token - 1},
		"with a higher token":        {Shard: g.shard, Session: a.ID(), Token: fence.Token + 1},
		"with a shard without grant": {Shard: other, Session: a.ID(), Token: fence.Token},
	} {
		g.refuses(a, wrong, what)
	}
	g.evict(a)
	g.accepts(a, fence, "under the latest grant, whose session was evicted,")
}

func refusedAfter(how, what string, end func(f *fixture, a, b *member, fence driver.Fence)) testCase {
	return guarded("RefusedAfter"+how, []rule{ruleF1}, "a guarded write is refused after "+what, func(g *guard) {
		a, b := g.join("a"), g.join("b")
		fence := a.acquire(g.shard)
		g.accepts(a, fence, "under the current grant")
		end(g.fixture, a, b, fence)
		for _, m := range []*member{a, b, g.observerOf(a)} {
			g.refuses(m, fence, "under a fence that is over")
		}
		if now := g.owner(g.shard); now.Session != "" {
			g.accepts(b, driver.Fence{Shard: g.shard, Session: now.Session, Token: now.Token}, "under the grant that ended the former")
		}
	})
}

// observerOf returns a copy of m on the backend of another process, which has read nothing yet.
func (f *fixture) observerOf(m *member) *member {
	f.t.Helper()
	c := *m
	c.b, c.node = f.open(), m.node+" elsewhere"
	return &c
}

func begunBeforeTakeover(g *guard) {
	a, b := g.join("a"), g.join("b")
	fence := a.acquire(g.shard)
	ctx, cancel := context.WithCancel(g.ctx)
	defer cancel()
	write, err := g.Begin(ctx, a.b, fence)
	g.setup("begin a guarded write", err)
	text := string(newID())
	if !g.Waits {
		b.preempt(g.shard)
		err := write(ctx, text)
		g.must(ruleF1, (errors.Is(err, driver.ErrFenced) || errors.Is(err, driver.ErrRetry)) && !slices.Contains(g.texts(), text),
			"%s, begun before a takeover and sent after it, answers %v; want ErrFenced or ErrRetry", g.Name, err)
		return
	}
	claim := driver.Claim{Shard: g.shard, Seen: seen(fence), Preempt: true}
	var r driver.AcquireResult
	taken := begin(func() error { r = b.claim(claim); return r.Err })
	g.waiting(taken)
	for range 20 { // more than the number of round trips of a takeover
		_, _ = b.b.Get(g.ctx, driver.PingShard, "0")
	}
	early, err := taken.early()
	g.must(ruleF1, !early || err != nil || g.store.OpenOther != nil, "a takeover did not wait for a write that %s began", g.Name)
	err = write(ctx, text)
	// A takeover through another door need not wait. If it does not wait, the store refuses the
	// write.
	refused := err != nil && g.store.OpenOther != nil && driver.NotApplied(err)
	g.must(ruleF1, (err == nil || refused) && slices.Contains(g.texts(), text) == (err == nil), "%s does not keep what it has proven: %v",
		g.Name, err)
	if !early {
		<-taken.answer
	}
	if r.Err != nil { // the takeover gave up waiting
		r = b.claim(claim)
	}
	g.must(ruleF1, r.Err == nil, "a takeover after a guarded write answers %v", r.Err)
	g.refuses(a, fence, "after a takeover that waited")
}

func guardedRacesTakeover(g *guard) {
	const chunk, most = 4, 30 // number of takeovers of a shard, and of writes that race one takeover
	holder, rival := g.joinOn(g.open(), "a"), g.joinOn(g.open(), "b")
	judge := g.join("judge")
	written, raced := 0, 0
	g.rounds(40, 1200*time.Millisecond, func(i int) {
		shard := driver.ShardID(string(g.shard) + "-" + string(newID())[:8])
		fence := holder.acquire(shard)
		for n := range chunk {
			version, _ := g.beatOf(holder.ID())
			var got driver.AcquireResult
			var accepted, refused, atGrant []string
			kind := takeover((i + n) % int(takeovers))
			together(func() {
				for len(accepted) < most && g.ctx.Err() == nil {
					text := string(newID())
					switch err := g.once(holder, fence, text); {
					case err == nil:
						accepted = append(accepted, text)
					case errors.Is(err, driver.ErrRetry):
						refused = append(refused, text)
					case errors.Is(err, driver.ErrFenced):
						refused = append(refused, text)
						return
					default:
						g.broken(ruleF1, "%s answers %v in a race; want success, ErrRetry or ErrFenced", g.Name, err)
						return
					}
				}
			}, func() {
				if got = kind.take(holder, rival, judge, fence, version); got.Err == nil {
					atGrant, got.Err = g.Texts(g.ctx)
				}
			})
			g.setup("a takeover", got.Err)
			g.refuses(holder, fence, "after a takeover")
			there, before := setOf(g.texts()), setOf(atGrant)
			for _, text := range accepted {
				g.must(ruleF1, there[text], "%s accepted a write that is not there", g.Name)
				g.must(ruleF1, before[text], "%s wrote under token %d after token %d had been granted", g.Name, fence.Token,
					got.Fence.Token)
			}
			for _, text := range refused {
				g.must(ruleF1, !there[text], "%s refused a write that is there", g.Name)
			}
			written += len(accepted)
			raced++
			fence = got.Fence
			if kind == byEviction {
				holder = g.joinOn(holder.b, holder.node)
			}
			holder, rival = rival, holder
		}
		holder.release(fence)
	})
	g.t.Logf("%d takeovers raced %d writes of %s", raced, written, g.Name)
	if written < raced/20 {
		g.Errorf("%s cannot be judged: only %d writes of %s were accepted in %d takeovers", ruleF1, written, g.Name, raced)
	}
}

func setOf(texts []string) map[string]bool {
	set := make(map[string]bool, len(texts))
	for _, text := range texts {
		set[text] = true
	}
	return set
}

func guardedForkedStore(g *guard) {
	a, b := g.join("a"), g.join("b")
	kept := a.acquire(g.shard)
	g.accepts(a, kept, "under the current grant")
	var lost driver.Fence
	g.rollBack(func() {
		lost = b.preempt(g.shard)
		g.accepts(b, lost, "under a grant that is lost later")
	})
	// The test makes these writes before any call that moves the namespace to the new history.
	for _, fence := range []driver.Fence{kept, lost} {
		for _, m := range []*member{a, b} {
			text := string(newID())
			err := g.once(m, fence, text)
			g.must(ruleF1, driver.NotApplied(err) && !slices.Contains(g.texts(), text),
				"%s of %s after a failover, under token %d of before it, answers %v; want a refusal", g.Name, m.node, fence.Token, err)
		}
	}
	fresh := g.join("fresh")
	for _, fence := range []driver.Fence{kept, lost} {
		for _, m := range []*member{a, b, fresh} {
			g.refuses(m, fence, "after a failover, under a lease of before it,", driver.ErrStoreChanged)
		}
	}
	v, err := fresh.b.Observe(g.ctx, driver.ObserveQuery{})
	g.setup("observe", err)
	r := fresh.claim(driver.Claim{Shard: g.shard, Seen: ownerIn(v, g.shard), Preempt: true})
	g.must(ruleI2, r.Err == nil && r.Fence.Token > lost.Token, "a claim after a failover answers %+v, %v; want a token above %d", r.Fence,
		r.Err, lost.Token)
	g.accepts(fresh, r.Fence, "under a lease of after a failover")
}

func guardedRestoredStore(f *fixture) {
	a, b := f.join("a"), f.join("b")
	kept := a.acquire("s")
	restore, err := f.store.Snapshot(f.ctx)
	f.setup("snapshot", err)
	lost := b.preempt("s")
	a.acquire("later")
	b.acquire("latest")
	a.beat()
	b.beat()
	f.setup("restore", restore(f.ctx))
	for _, m := range []*member{a, b} {
		err := m.Beat(f.ctx)
		f.must(ruleI1, errors.Is(err, driver.ErrStoreChanged), "a heartbeat on a store that went back answers %v; want ErrStoreChanged", err)
	}
	for _, by := range f.store.Guards {
		g := &guard{f, by, "s"}
		for _, m := range []*member{a, b} {
			for _, fence := range []driver.Fence{kept, lost} {
				text := string(newID())
				err := g.once(m, fence, text)
				g.must(ruleI1, driver.NotApplied(err) && !slices.Contains(g.texts(), text),
					"%s of %s, which found that an older copy was restored, answers %v under token %d; want a refusal", g.Name,
					m.node, err, fence.Token)
			}
		}
	}
}

func guardedRaisedFloor(g *guard) {
	a := g.join("a")
	kept := a.acquire(g.shard)
	above := kept.Token + 1000
	g.setup("raise the floor", g.store.RaiseFloor(g.ctx, above))
	text := string(newID())
	passed := g.write(a, kept, text) == nil || slices.Contains(g.texts(), text)
	if c := a.write(kept, 1, appendOp("x")); passed {
		g.must(ruleF1, c.Err == nil, "%s passes after the floor was raised, and a commit answers %v", g.Name, c.Err)
	}
	b := g.join("b")
	v, err := b.b.Observe(g.ctx, driver.ObserveQuery{})
	g.setup("observe", err)
	r := b.claim(driver.Claim{Shard: g.shard, Seen: ownerIn(v, g.shard), Preempt: true})
	g.must(ruleI1, r.Err == nil && r.Fence.Token > above, "a claim after the floor was raised to %d answers %+v, %v", above, r.Fence, r.Err)
	for _, m := range []*member{a, b} {
		g.refuses(m, kept, "after the floor was raised and the shard taken,", driver.ErrStoreChanged)
	}
	g.accepts(b, r.Fence, "after the floor was raised")
}
