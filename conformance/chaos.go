package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/history"
)

func chaosCases() []testCase {
	const area = "Chaos"
	return []testCase{
		{Area: area, Property: "RandomOpsLinearizable", Rules: []rule{ruleA1, ruleA2, ruleF1, ruleL1, ruleE1}, run: randomOps,
			Shows: "random calls of several members have an order that fits the log"},
		{Area: area, Property: "LoseReplies", Rules: []rule{ruleA1, ruleA2, ruleF1, ruleL1, ruleE1}, Needs: []string{"Wire.DropReplies"},
			run:   loseReplies,
			Shows: "the same while replies are lost"},
		{Area: area, Property: "DuplicateRequests", Rules: []rule{ruleA1, ruleA2, ruleF1, ruleL1, ruleE1},
			Needs: []string{"Wire.Duplicate"}, run: duplicateRequests,
			Shows: "the same while requests arrive twice"},
		{Area: area, Property: "PauseHolder", Rules: []rule{ruleF1, ruleR1, ruleM1, ruleA1}, Needs: []string{"Wire.Hold"},
			run:   pauseHolder,
			Shows: "a holder's requests that arrive after a takeover change nothing"},
		{Area: area, Property: "CutHolder", Rules: []rule{ruleF1, ruleM1, ruleE1}, Needs: []string{"Wire.Cut"}, run: cutHolder,
			Shows: "a holder without connection learns of its loss on reconnecting, not before"},
		{Area: area, Property: "RestartStore", Rules: []rule{ruleA1, ruleF1, ruleM1, ruleE3}, Needs: []string{"Restart"},
			run:   restartStore,
			Shows: "a store restart ends no session, lease, item or entry; backends continue"},
		{Area: area, Property: "WipeStore", Rules: []rule{ruleI1}, Needs: []string{"Wipe"}, run: wipeStore,
			Shows: "a wiped store grants nothing to earlier members"},
		{Area: area, Property: "RestoreOlderStore", Rules: []rule{ruleI1, ruleA2, ruleE1}, Needs: []string{"Snapshot"},
			run:   restoreOlderStore,
			Shows: "a restored store grants nothing to members that knew the newer one"},
		{Area: area, Property: "ForkedStore", Rules: []rule{ruleI2, ruleA2}, Needs: []string{"Snapshot", "Fork"},
			run:   forkedStore,
			Shows: "a failover that lost grants repeats no token, ends earlier leases, keeps members"},
		{Area: area, Property: "ForkedStoreAgain", Rules: []rule{ruleI2}, Needs: []string{"Snapshot", "Fork"},
			run:   forkedStoreAware,
			Shows: "the same where a claim meets it first, or a second failover follows"},
		{Area: area, Property: "ForkedStoreCommit", Rules: []rule{ruleI2, ruleF1}, Needs: []string{"Snapshot", "Fork"},
			run:   forkedStoreCommit,
			Shows: "the same where a commit meets it first: it is not applied"},
		{Area: area, Property: "ForkedStoreOldest", Rules: []rule{ruleI2, ruleA2}, Needs: []string{"Snapshot", "Fork"},
			run:   forkedStoreOldest,
			Shows: "of two failovers from one state the later one's tokens are greater, whatever its store and its members knew"},
		{Area: area, Property: "IsolatedMaster", Rules: []rule{ruleI2, ruleM1, ruleA1}, Needs: []string{"Isolate"},
			run:   isolatedMaster,
			Shows: "a server cut off from those that can take over extends no session and acknowledges no write"},
		{Area: area, Property: "IsolatedReads", Rules: []rule{ruleI2, ruleO1, ruleL2, ruleL4}, Needs: []string{"Isolate"},
			run:   isolatedReads,
			Shows: "what such a server answers a reader is there after another one took over"},
	}
}

// actor is a member that makes random calls on a few shards, and records the answers.
type actor struct {
	*member
	peers   []driver.SessionID
	records map[driver.ShardID]driver.Owner
	fences  map[driver.ShardID][]driver.Fence // fences granted to this actor, oldest first
	call    func() (context.Context, context.CancelFunc)
}

func acted() []driver.ShardID { return []driver.ShardID{"s", "t"} }

// actors returns n actors, each on a backend that open returns.
func (f *fixture) actors(n int, r *history.Recorder, open func() driver.Backend) []*actor {
	f.t.Helper()
	all := make([]*actor, n)
	var ids []driver.SessionID
	for i := range all {
		all[i] = &actor{
			member:  f.joinOn(open(), fmt.Sprint("actor-", i)).recorded(r),
			records: map[driver.ShardID]driver.Owner{},
			fences:  map[driver.ShardID][]driver.Fence{},
			call:    func() (context.Context, context.CancelFunc) { return f.ctx, func() {} },
		}
		ids = append(ids, all[i].ID())
	}
	for _, a := range all {
		a.peers = ids
	}
	return all
}

func (a *actor) act() {
	shard := acted()[rand.N(2)]
	ctx, cancel := a.call()
	defer cancel()
	held := a.fences[shard]
	if len(held) == 0 || rand.N(5) == 0 {
		claim := driver.Claim{Shard: shard, Seen: a.records[shard], Preempt: rand.N(2) == 0}
		a.learn(shard, a.claimCtx(ctx, claim))
		return
	}
	// The actor usually writes under its newest lease. Sometimes it writes under an older lease, as
	// a zombie would.
	fence := held[len(held)-1]
	if rand.N(4) == 0 {
		fence = held[rand.N(len(held))]
	}
	switch rand.N(8) {
	case 0:
		to := a.peers[rand.N(len(a.peers))]
		a.learn(shard, a.transferCtx(ctx, fence, to))
	case 1:
		if a.Release(ctx, []driver.Fence{fence}) == nil {
			a.records[shard] = driver.Owner{Token: fence.Token}
		}
	case 2:
		if err := a.Beat(ctx); errors.Is(err, driver.ErrSessionLost) || errors.Is(err, driver.ErrStoreChanged) {
			a.f.Errorf("a heartbeat of a session that nobody ended answers %v", err)
		}
	default:
		page, err := a.b.ReadLog(ctx, shard, 0, 0)
		if err != nil {
			return
		}
		// The actor reads immediately before it writes, so only the fence stops a zombie.
		a.writeCtx(ctx, newWrite(fence, page.Head.Number+1, appendUnique()))
	}
}

func (a *actor) learn(shard driver.ShardID, r driver.AcquireResult) {
	if owner, held := heldWith(r.Err); held {
		a.records[shard] = owner
	}
	if r.Err != nil {
		return
	}
	a.records[shard] = seen(r.Fence)
	if r.Fence.Session == a.ID() {
		a.fences[shard] = append(a.fences[shard], r.Fence)
		if len(a.fences[shard]) > 6 {
			a.fences[shard] = a.fences[shard][1:]
		}
	}
}

// turmoil runs the actors concurrently in rounds, and waits between rounds until the store is calm.
// After the last round, it checks the answers. On a slow store, it adds rounds, up to a limit,
// until it has enough answers to check.
func (f *fixture) turmoil(actors []*actor, r *history.Recorder, round func(i int, act func())) {
	f.t.Helper()
	n := 0
	play := func(int) {
		round(n, func() {
			together(times(len(actors), func(k int) {
				for range 6 {
					actors[k].act()
				}
			})...)
		})
		n++
	}
	idle := func() bool {
		return slices.ContainsFunc(acted(), func(s driver.ShardID) bool { return accepted(r, s) == 0 })
	}
	f.rounds(40, 1500*time.Millisecond, play)
	ctx, cancel := context.WithTimeout(f.ctx, f.patience())
	defer cancel()
	for idle() && ctx.Err() == nil && !f.failed() {
		play(n)
	}
	judge := f.join("judge").recorded(r)
	for _, shard := range acted() {
		if accepted(r, shard) == 0 {
			f.Errorf("%s cannot be judged: no commit to shard %q was accepted", ruleF1, shard)
		}
		f.quiesce(judge, judge.preempt(shard))
	}
	f.judge(r, acted()...)
}

func randomOps(f *fixture) {
	r := f.recorder()
	f.turmoil(f.actors(4, r, f.open), r, func(_ int, act func()) { act() })
}

func loseReplies(f *fixture) {
	b, w := f.wire("DropReplies", func(w *Wire) bool { return w.DropReplies != nil })
	r := f.recorder()
	actors := append(f.actors(2, r, f.open), f.actors(2, r, func() driver.Backend { return b })...)
	for _, a := range actors[2:] {
		a.peers = actors[0].peers
	}
	lossy := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(f.ctx, time.Duration(5+rand.N(10))*time.Millisecond)
	}
	calm := actors[0].call
	f.turmoil(actors, r, func(i int, act func()) {
		for _, a := range actors[2:] {
			a.call = calm
			if i%2 == 1 {
				a.call = lossy
			}
		}
		if i%2 == 1 {
			defer w.DropReplies()()
		}
		act()
	})
}

func duplicateRequests(f *fixture) {
	b, w := f.wire("Duplicate", func(w *Wire) bool { return w.Duplicate != nil })
	r := f.recorder()
	actors := append(f.actors(2, r, f.open), f.actors(2, r, func() driver.Backend { return b })...)
	for _, a := range actors[2:] {
		a.peers = actors[0].peers
	}
	defer w.Duplicate()()
	f.turmoil(actors, r, func(_ int, act func()) { act() })
}

func pauseHolder(f *fixture) {
	b, w := f.wire("Hold", func(w *Wire) bool { return w.Hold != nil })
	other := f.open()
	for i := range 3 {
		name := func(s string) driver.ShardID { return driver.ShardID(fmt.Sprint(s, i)) }
		holder, successor := f.joinOn(b, "holder"), f.joinOn(other, "successor")
		fence, spare := holder.acquire(name("s")), holder.acquire(name("spare"))
		head := holder.commit(fence, put("k", "v"), appendOp("x"))
		successorBeat, _ := f.beatOf(successor.ID())

		release := w.Hold()
		together(
			func() { ctx, cancel := f.short(); defer cancel(); _ = holder.Beat(ctx) },
			func() { f.heldWrite(holder, newWrite(fence, head.Number+1, put("k", "late"), appendOp("late"))) },
			func() {
				ctx, cancel := f.short()
				defer cancel()
				holder.transferCtx(ctx, spare, holder.ID())
			},
			func() { ctx, cancel := f.short(); defer cancel(); _ = holder.Release(ctx, []driver.Fence{fence}) },
			func() {
				ctx, cancel := f.short()
				defer cancel()
				holder.claimCtx(ctx, driver.Claim{Shard: name("new")})
			},
			func() {
				ctx, cancel := f.short()
				defer cancel()
				_ = evictCtx(ctx, holder, driver.Suspect{Session: successor.ID(), Version: successorBeat})
			},
		)
		successor.beat()
		f.evict(holder)
		next, nextSpare := successor.acquire(name("s")), successor.acquire(name("spare"))
		release()
		f.delivered(holder, name("s"))

		for range ample.During(150*time.Millisecond, 2*time.Millisecond) {
			switch {
			case f.head(name("s")) != head || string(f.get(name("s"), "k").Value) != "v":
				f.fail(ruleF1, "a commit that arrived after the takeover took effect: head %+v", f.head(name("s")))
			case f.owner(name("s")) != seen(next):
				f.fail(ruleR1, "a release that arrived after the takeover changed the record to %+v",
					f.owner(name("s")))
			case f.owner(name("spare")) != seen(nextSpare):
				f.fail(ruleA1, "a transfer that arrived after the takeover changed the record to %+v",
					f.owner(name("spare")))
			case f.owner(name("new")) != driver.Owner{}:
				f.fail(ruleA1, "a claim that arrived after its session was evicted took the shard: %+v",
					f.owner(name("new")))
			case f.isMember(holder.ID()) || !f.isMember(successor.ID()):
				f.fail(ruleM1, "a heartbeat brought an evicted session back, or its evict of an older version ended another")
			}
		}
		f.must(ruleM1, errors.Is(f.settle(func() error { return holder.Beat(f.ctx) }), driver.ErrSessionLost),
			"the resumed holder's heartbeat does not report that its session is lost")
	}
}

func cutHolder(f *fixture) {
	b, w := f.wire("Cut", func(w *Wire) bool { return w.Cut != nil })
	holder, successor := f.joinOn(b, "holder"), f.join("successor")
	fence := holder.acquire("s")
	head := holder.commit(fence, appendOp("x"))
	heal := w.Cut()
	for range 3 {
		ctx, cancel := f.short()
		for call, err := range map[string]error{
			"Beat":    holder.Beat(ctx),
			"Commit":  holder.writeCtx(ctx, newWrite(fence, head.Number+1, appendOp("cut"))).Err,
			"Acquire": holder.claimCtx(ctx, driver.Claim{Shard: "t"}).Err,
		} {
			f.must(ruleE1, err != nil && (driver.Unknown(err) || errors.Is(err, driver.ErrRetry)),
				"%s without a connection answers %v; want an error outside of the closed set", call, err)
		}
		cancel()
	}
	f.evict(holder)
	next := successor.acquire("s")
	heal()
	err := f.settle(func() error { return holder.write(fence, f.head("s").Number+1, appendOp("stale")).Err })
	f.must(ruleF1, errors.Is(err, driver.ErrFenced), "the former holder's commit after its connection came back answers "+
		"%v; want ErrFenced", err)
	err = f.settle(func() error { return holder.Beat(f.ctx) })
	f.must(ruleM1, errors.Is(err, driver.ErrSessionLost), "the former holder's heartbeat after its connection came back "+
		"answers %v; want ErrSessionLost", err)
	f.must(ruleF1, f.head("s") == head && successor.write(next, head.Number+1, appendOp("y")).Err == nil,
		"commits of the cut holder took effect, or the successor's does not: head %+v", f.head("s"))
}

func restartStore(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	head := a.commit(fence, appendOp("x"), put("k", "v"))
	m, t := f.watch(b.b), f.tail(b.b)
	for range 2 {
		f.restart()
		for _, member := range []*member{a, b} {
			err := f.settle(func() error { return member.Beat(f.ctx) })
			f.must(ruleM1, err == nil, "a heartbeat after a restart of the store answers %v", err)
		}
		f.must(ruleA1, f.owner("s") == seen(fence), "after a restart of the store the record is %+v; want %+v",
			f.owner("s"), seen(fence))
		f.must(ruleF1, f.head("s") == head && len(f.log("s", 0)) == int(head.Seq) && f.get("s", "k") != nil,
			"after a restart of the store the head is %+v; want %+v", f.head("s"), head)
		w := a.write(fence, head.Number+1, appendOp("y"))
		f.must(ruleF1, w.Err == nil, "after a restart of the store the holder's commit answers %v", w.Err)
		head = w.Head
		full := f.state()
		f.must(ruleE3, f.eventually(f.patience(), func() bool {
			return m.until(func() bool { return m.same(full) }) && t.until(map[driver.ShardID]driver.Seq{"s": head.Seq})
		}), "after a restart of the store an open backend's views do not go on")
	}
}

func wipeStore(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	a.commit(fence, appendOp("x"))
	free := b.acquire("free")
	b.release(free)
	f.setup("wipe", f.store.Wipe(f.ctx))

	refused := func(when string) {
		f.t.Helper()
		for call, do := range map[string]func() error{
			"Beat":     func() error { return a.Beat(f.ctx) },
			"Acquire":  func() error { return b.claim(driver.Claim{Shard: "new"}).Err },
			"Transfer": func() error { return a.transfer(fence, a.ID()).Err },
			"Commit":   func() error { return a.write(fence, 2, appendOp("y")).Err },
		} {
			err := do()
			f.must(ruleI1, err != nil, "%s succeeds on a store that was wiped%s", call, when)
		}
		for _, m := range []*member{a, b} {
			_, err := f.tryJoin(m.b, f.newcomer(m.b, m.node))
			f.must(ruleI1, errors.Is(err, driver.ErrStoreChanged),
				"joining on a store that was wiped%s answers %v; want ErrStoreChanged", when, err)
		}
		err := a.Beat(f.ctx)
		f.must(ruleI1, errors.Is(err, driver.ErrStoreChanged),
			"a heartbeat on a store that was wiped%s answers %v; want ErrStoreChanged", when, err)
	}
	refused("")
	if f.store.OpenExisting != nil {
		_, err := f.tryOpen(f.store.OpenExisting)
		f.must(ruleI1, err != nil, "a store that was wiped opens without Create")
	}
	anew := f.open()
	f.must(ruleI1, anew.Info().StoreID != a.b.Info().StoreID,
		"a store that was wiped and created anew has the same identity")
	n := f.joinOn(anew, "c")
	n.take(driver.Claim{Shard: "s"})
	refused(" and created anew")
}

func restoreOlderStore(f *fixture) {
	a, b, c := f.join("a"), f.join("b"), f.join("c")
	d := f.join("d")
	fence := a.acquire("s")
	a.commit(fence, appendOp("x"))
	idle := d.acquire("idle")
	head := d.commit(idle, appendOp("x"))
	restore, err := f.store.Snapshot(f.ctx)
	f.setup("snapshot", err)
	newest := fence.Token
	for range 5 {
		for _, m := range []*member{a, b, c, d} {
			m.beat()
			if m == d { // the lease and log of d must be unchanged
				continue
			}
			newest = max(newest, m.preempt("s").Token)
			m.commit(driver.Fence{Shard: "s", Session: m.ID(), Token: newest}, appendOp("y"))
		}
	}
	f.setup("restore", restore(f.ctx))

	beat := a.Beat(f.ctx)
	f.must(ruleI1, errors.Is(beat, driver.ErrStoreChanged), "a heartbeat that replaces a version older than one that was "+
		"acknowledged answers %v; want ErrStoreChanged", beat)
	claimed := f.wentBack("a claim", func() error {
		r := b.claim(driver.Claim{Shard: "s", Seen: seen(fence), Preempt: true})
		if r.Err == nil {
			f.must(ruleA2, r.Fence.Token > newest, "token %d was granted after the store went back; token %d had been "+
				"granted before", r.Fence.Token, newest)
		}
		return r.Err
	})
	committed := d.write(idle, head.Number+1, appendOp("z")).Err
	err = d.Beat(f.ctx)
	f.must(ruleI1, errors.Is(err, driver.ErrStoreChanged), "a heartbeat after a commit on a store that went back answers %v; want "+
		"ErrStoreChanged", err)
	newcomer := f.newcomer(c.b, "e")
	joined := f.wentBack("a join", func() error {
		_, err := c.b.Join(f.ctx, newcomer)
		return err
	})
	anew, err := f.tryOpen(f.store.Open)
	if err != nil { // the store refuses the restored state until an operator decides
		f.must(ruleI1, errors.Is(err, driver.ErrStoreChanged), "opening a store that went back answers %v", err)
		return
	}
	v, err := anew.Observe(f.ctx, driver.ObserveQuery{})
	f.setup("observe", err)
	page, err := anew.ReadLog(f.ctx, "idle", 0, 0)
	f.setup("read the head", err)
	const applied = "%s on a store that went back answers %v, of which the store shows the contrary"
	f.must(ruleE1, driver.Unknown(claimed) || ownerIn(v, "s").Session == fence.Session, applied, "a claim", claimed)
	f.must(ruleE1, driver.Unknown(committed) || (committed == nil) == (page.Head.Number == head.Number+1), applied, "a commit", committed)
	f.must(ruleE1, driver.Unknown(joined) || !slices.ContainsFunc(v.Members, func(m driver.Member) bool {
		return m.Session == newcomer.Session
	}), applied, "a join", joined)
}

// wentBack returns the answer to a process's first write after the store went back to an older
// state. If a store cannot compare the acknowledged revision in a transaction, the process may
// detect the change only from the answer to an applied write. The outcome of that write is unknown,
// and every later call returns ErrStoreChanged.
func (f *fixture) wentBack(call string, write func() error) error {
	f.t.Helper()
	first := write()
	f.must(ruleI1, driver.Unknown(first) || errors.Is(first, driver.ErrStoreChanged), "%s on a store that went back answers %v; want "+
		"ErrStoreChanged, or an unknown outcome", call, first)
	again := write()
	f.must(ruleI1, errors.Is(again, driver.ErrStoreChanged), "%s on a store that went back answers %v when it is repeated; want "+
		"ErrStoreChanged", call, again)
	return first
}
