package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

func viewCases() []testCase {
	const area = "Views"
	return []testCase{
		{Area: area, Property: "FullThenDelta", Rules: []rule{ruleO1, ruleO2}, run: fullThenDelta,
			Shows: "an empty cursor gets everything, later pages each change and departure"},
		{Area: area, Property: "FullIsFresh", Rules: []rule{ruleO1}, run: fullIsFresh,
			Shows: "a full state has every write acknowledged before it was requested"},
		{Area: area, Property: "NoLostFinalState", Rules: []rule{ruleO1}, run: noLostFinalState,
			Shows: "after any burst of changes a follower reaches the final state"},
		{Area: area, Property: "NeverBackwards", Rules: []rule{ruleO1}, run: neverBackwards,
			Shows: "over all calls no shard's token decreases and no ended session returns"},
		{Area: area, Property: "ResetAfterCompaction", Rules: []rule{ruleO1}, Needs: []string{"Compact"},
			run:   resetAfterCompaction,
			Shows: "a cursor from before a compaction still leads to the final state"},
		{Area: area, Property: "ForeignCursor", Rules: []rule{ruleO1}, run: foreignCursor,
			Shows: "bytes that are no cursor get a reset or an error"},
		{Area: area, Property: "OlderBeatIsNoNews", Rules: []rule{ruleO1, ruleM1}, run: olderBeatIsNoNews,
			Shows: "a version older than the caller's is not reported as a heartbeat"},
		{Area: area, Property: "BeatsOnlyAsAsked", Rules: []rule{ruleO1, ruleO3}, run: beatsOnlyAsAsked,
			Shows: "a heartbeat wakes only the readers that asked for it"},
		{Area: area, Property: "CommitsWakeNobody", Rules: []rule{ruleO3}, run: commitsWakeNobody,
			Shows: "commits change no record, so they are not in the view"},
		{Area: area, Property: "ContextPrompt", Rules: []rule{ruleO2, ruleX1}, run: contextPrompt,
			Shows: "a blocked call ends with its context; the next one is unharmed"},
		{Area: area, Property: "SlowReaderBounded", Rules: []rule{ruleO2}, alone: true, run: slowReaderBounded,
			Shows: "changes that a slow reader has not requested are not buffered"},
		{Area: area, Property: "IdleIsQuiet", Rules: []rule{ruleO3}, Needs: []string{"Calls"}, alone: true,
			run:   idleIsQuiet,
			Shows: "blocked calls on an unchanged namespace only poll"},
		{Area: area, Property: "HeadIsTheGrants", Rules: []rule{ruleO1, ruleA5}, run: headIsTheGrants,
			Shows: "a view's head is the one that the record's lease found"},
		{Area: area, Property: "PrefixNoCrossTalk", Rules: []rule{ruleO1, ruleA1, ruleL2}, run: prefixNoCrossTalk,
			Shows: "shards 1 and 10, and keys that begin alike, share nothing"},
		{Area: area, Property: "LongValuesLeftOut", Rules: []rule{ruleL2, ruleD1}, run: longValuesLeftOut,
			Shows: "a list leaves out values above its bound, and what all of them together have beyond MaxListBytes"},
		{Area: area, Property: "NamespaceNoCrossTalk", Rules: []rule{ruleO1, ruleA1, ruleL4}, Needs: []string{"OpenNamespace"},
			run:   namespaceNoCrossTalk,
			Shows: "namespaces of one store, nested ones too, share nothing"},
	}
}

func fullThenDelta(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	m := f.watch(f.open())
	f.must(ruleO1, m.same(f.state()) && len(m.members) == 2 && m.shards["s"] == seen(fence),
		"the first page has members %v and shards %v", m.members, m.shards)

	var c *member
	for _, step := range []struct {
		what string
		do   func()
		seen func() bool
	}{
		{"a join", func() { c = f.join("c") }, func() bool { return m.members[c.ID()].Node == "c" }},
		{"a claim", func() { c.acquire("t") }, func() bool { return m.shards["t"].Session == c.ID() }},
		{"a transfer", func() { f.setup("transfer", a.transfer(fence, b.ID()).Err) },
			func() bool { return m.shards["s"].Session == b.ID() }},
		{"a release", func() {
			now := m.shards["s"]
			b.release(driver.Fence{Shard: "s", Session: now.Session, Token: now.Token})
		}, func() bool { return m.shards["s"].Session == "" && m.shards["s"].Token > fence.Token }},
		{"a close", func() { f.setup("close", b.Close(f.ctx)) }, func() bool { return m.gone[b.ID()] }},
		{"an evict", func() { f.evict(c) }, func() bool { return m.gone[c.ID()] }},
	} {
		step.do()
		f.must(ruleO2, m.until(step.seen), "%s was not reported: members %v, gone %v, shards %v", step.what, m.members,
			m.gone, m.shards)
	}
	f.must(ruleO1, m.shards["t"].Session == c.ID(), "the shard of a session that ended has the record %+v; only a new "+
		"grant changes it", m.shards["t"])
}

func headIsTheGrants(f *fixture) {
	a, b, watcher := f.join("a"), f.joinOn(f.open(), "b"), f.open()
	full, err := watcher.Observe(f.ctx, driver.ObserveQuery{})
	f.setup("observe", err)
	cursor := full.Cursor
	fence := a.acquire("s")
	// The loop reads pages until one contains the record with the fence, and then checks that
	// page's head.
	told := func(grant driver.Head) {
		for {
			v, err := watcher.Observe(f.ctx, driver.ObserveQuery{Since: cursor})
			f.setup("observe", err)
			cursor = v.Cursor
			for _, s := range v.Shards {
				if s.Owner != seen(fence) {
					continue
				}
				f.must(ruleO1, s.Head == nil || *s.Head == grant, "a view tells of token %d with head %+v; the lease found %+v",
					fence.Token, s.Head, grant)
				return
			}
		}
	}
	told(driver.Head{})
	for i := range 6 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		// Before the hand-over, the owner commits, another process commits without the owner's
		// knowledge, both commit, or neither commits.
		if i%3 != 1 {
			from.commit(fence, appendUnique())
		}
		if i >= 2 {
			to.commit(fence, appendUnique())
		}
		before := f.head("s")
		r := from.transfer(fence, to.ID())
		f.must(ruleA5, r.Err == nil && r.Head == before, "a transfer answers %v with head %+v; the shard's is %+v", r.Err,
			r.Head, before)
		fence = r.Fence
		told(before)
		after := to.commit(fence, appendUnique())
		for _, s := range f.state().Shards {
			f.must(ruleO1, s.Shard != "s" || s.Head == nil || *s.Head == before || *s.Head == after,
				"a full state has head %+v; the lease found %+v and made it %+v", s.Head, before, after)
		}
	}
}

func fullIsFresh(f *fixture) {
	a := f.join("a")
	others := []driver.Backend{f.open(), f.open()}
	for _, b := range others {
		f.watch(b)
	}
	f.rounds(300, time.Second, func(i int) {
		fence := a.acquire(driver.ShardID(fmt.Sprintf("s%d", i)))
		v, err := others[i%2].Observe(f.ctx, driver.ObserveQuery{})
		f.setup("observe", err)
		f.must(ruleO1, v.Reset && ownerIn(v, fence.Shard) == seen(fence),
			"a full state asked for after token %d was granted has the record %+v", fence.Token,
			ownerIn(v, fence.Shard))
	})
}

// churn runs a member on each backend. Until stop is closed, the members take, transfer and release
// leases, join, and leave at random.
func (f *fixture) churn(backends []driver.Backend, stop <-chan struct{}) *sync.WaitGroup {
	f.t.Helper()
	var wg sync.WaitGroup
	bystander := f.joinOn(f.read(), "bystander")
	for i, b := range backends {
		m := f.joinOn(b, fmt.Sprintf("churn-%d", i))
		wg.Go(func() {
			records := map[driver.ShardID]driver.Owner{}
			for {
				select {
				case <-stop:
					return
				default:
				}
				shard := driver.ShardID(fmt.Sprint("c", rand.N(8)))
				r := m.claim(driver.Claim{Shard: shard, Seen: records[shard], Preempt: rand.N(2) == 0})
				owner, held := heldWith(r.Err)
				switch {
				case held:
					records[shard] = owner
					continue
				case r.Err != nil:
					f.Errorf("a claim answers %v", r.Err)
					return
				}
				records[shard] = seen(r.Fence)
				if err := f.move(m, bystander, r.Fence); err != nil && !driver.NotApplied(err) {
					f.Errorf("an operation without a fault answers %v", err)
					return
				}
			}
		})
	}
	return &wg
}

// move makes a member transfer or release a lease, leave and join again, or send a heartbeat.
func (f *fixture) move(m, bystander *member, fence driver.Fence) error {
	switch rand.N(6) {
	case 0:
		return m.transfer(fence, bystander.ID()).Err
	case 1:
		return m.tryRelease(fence)
	case 2:
		if err := m.Close(f.ctx); err != nil {
			return err
		}
		s, err := f.tryJoin(m.b, f.newcomer(m.b, m.node))
		if err != nil {
			return fmt.Errorf("joining again: %v", err) // err may be any error
		}
		m.Session = s
	case 3:
		return m.Beat(f.ctx)
	}
	return nil
}

// fn runs repeatedly for a while, alongside churn.
func (f *fixture) during(budget time.Duration, backends []driver.Backend, fn func()) {
	f.t.Helper()
	stop := make(chan struct{})
	wg := f.churn(backends, stop)
	f.rounds(1<<20, budget, func(int) { fn() })
	close(stop)
	wg.Wait()
}

func noLostFinalState(f *fixture) {
	backends, busy := []driver.Backend{f.open(), f.open()}, []driver.Backend{f.open(), f.open(), f.open()}
	f.rounds(10, 1500*time.Millisecond, func(i int) {
		mirrors := []*mirror{f.watch(backends[0]), f.watch(backends[1])}
		f.during(50*time.Millisecond, busy, func() {
			_, err := mirrors[0].next(f.ctx)
			f.setup("observe", err)
		})
		full := f.state()
		for _, m := range mirrors {
			f.must(ruleO1, m.until(func() bool { return m.same(full) }),
				"round %d: a follower that asked %d times ended with members %v and shards %v; the state is %+v", i,
				m.pages, m.members, m.shards, full)
		}
	})
}

func neverBackwards(f *fixture) {
	b := f.open()
	m := f.watch(b)
	n := 0
	f.during(time.Second, []driver.Backend{f.open(), f.open(), f.open()}, func() {
		if n++; n%4 == 0 {
			v, err := b.Observe(f.ctx, driver.ObserveQuery{})
			f.setup("observe", err)
			m.apply(v)
			return
		}
		_, err := m.next(f.ctx)
		f.setup("observe", err)
	})
}

func resetAfterCompaction(f *fixture) {
	a, leaver := f.join("a"), f.join("leaver")
	fence := a.acquire("s")
	m := f.watch(f.open())
	for i := range 3 {
		f.join(fmt.Sprint("new", i))
		moved := a.transfer(fence, a.ID())
		f.setup("transfer", moved.Err)
		fence = moved.Fence
		if i == 1 {
			f.setup("close", leaver.Close(f.ctx))
		}
		f.setup("compact", f.store.Compact(f.ctx))
		a.acquire(driver.ShardID(fmt.Sprint("after", i)))
		if i > 0 {
			m.b = f.open()
		}
		full := f.state()
		f.must(ruleO1, m.until(func() bool { return m.same(full) }),
			"after a compaction a follower has members %v and shards %v; the state is %+v", m.members, m.shards, full)
	}
	f.must(ruleO1, m.gone[leaver.ID()], "a member that left before the compaction is still in the view")
}

func foreignCursor(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	for _, cursor := range []driver.Cursor{"x", "-1", "\x00\xff\xfe", "9999999999999999999999", "{\"rev\":1}",
		driver.Cursor(make([]byte, 1<<16))} {
		v, err := f.read().Observe(f.ctx, driver.ObserveQuery{Since: cursor})
		if errors.Is(err, driver.ErrInvalid) {
			continue
		}
		f.must(ruleO1, err == nil && v.Reset && ownerIn(v, "s") == seen(fence),
			"observing from the cursor %.20q answers %+v, %v; want the full state or ErrInvalid", cursor, v, err)
	}
}

// blocked makes a reader wait for its next page during changes that the reader did not request. The
// page must then show a later change.
func (f *fixture) blocked(m *mirror, r rule, what string, doing func()) {
	f.t.Helper()
	bell := f.bell(m.b)
	asked := m.beats
	m.beats = map[driver.SessionID]driver.Version{}
	first := bell.ring()
	if !m.until(func() bool { return m.shards[first].Session == bell.ID() }) {
		f.setup("bring a reader up to date", errors.New("a claim is not reported"))
	}
	m.beats = asked
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var page *driver.View
	query := driver.ObserveQuery{Since: m.cursor, Beats: m.asked()}
	got := begin(func() (err error) {
		page, err = m.b.Observe(ctx, query)
		return err
	})
	f.waiting(got)
	doing()
	bell.looked(got)
	last := bell.ring()
	err := f.answered(got, r, "a reader that was blocked beside %s is not told of a later claim", what)
	f.must(r, err == nil && ownerIn(page, last).Session == bell.ID() && len(page.Beats) == 0, "%s woke a reader: %+v, %v",
		what, page, err)
	m.apply(page)
}

func (m *mirror) asked() []driver.Beat {
	var beats []driver.Beat
	for id, version := range m.beats {
		beats = append(beats, driver.Beat{Session: id, Version: version})
	}
	return beats
}

func beatsOnlyAsAsked(f *fixture) {
	a, b := f.join("a"), f.join("b")
	m := f.watch(f.open())
	f.blocked(m, ruleO3, "heartbeats that nobody asked for", func() {
		a.beat()
		b.beat()
	})

	m.beats[a.ID()] = 0
	f.must(ruleO1, m.until(func() bool { return m.beats[a.ID()] != 0 }),
		"a beat asked for with version 0 is not reported at once")
	for range 5 {
		before := m.beats[a.ID()]
		f.blocked(m, ruleO3, "the heartbeats of another session than the one asked for", b.beat)
		a.beat()
		f.must(ruleO1, m.until(func() bool { return m.beats[a.ID()] != before }),
			"a heartbeat that was asked for is not reported")
		now, _ := f.beatOf(a.ID())
		f.must(ruleO1, m.until(func() bool { return m.beats[a.ID()] == now }),
			"the version reported is %d; the record has %d", m.beats[a.ID()], now)
	}
	absent := newID()
	m.beats[absent] = 0
	f.blocked(m, ruleO3, "asking for a session without a record", func() {})
}

// olderBeatIsNoNews requests changes after the version of a heartbeat that this reader has not seen
// yet. A refused eviction has the same effect.
func olderBeatIsNoNews(f *fixture) {
	a := f.join("a")
	m := f.watch(f.open())
	m.beats[a.ID()] = 0
	f.must(ruleO1, m.until(func() bool { return m.beats[a.ID()] != 0 }),
		"a beat asked for with version 0 is not reported at once")
	for range 3 {
		before := m.beats[a.ID()]
		ahead := before + 1
		m.beats[a.ID()] = ahead
		f.blocked(m, ruleO1, "a version that is older than the one asked with", func() {})
		a.beat()
		a.beat()
		f.must(ruleM1, m.until(func() bool { return m.beats[a.ID()] != ahead }),
			"a heartbeat that was asked for is not reported")
		f.must(ruleO1, m.beats[a.ID()] > ahead, "version %d was reported to a reader that asked with version %d",
			m.beats[a.ID()], ahead)
		now, _ := f.beatOf(a.ID())
		f.must(ruleM1, m.until(func() bool { return m.beats[a.ID()] == now }),
			"the version reported is %d; the record has %d", m.beats[a.ID()], now)
	}
	m.beats[a.ID()]++
	full, err := m.b.Observe(f.ctx, driver.ObserveQuery{Beats: m.asked()})
	f.setup("read in full", err)
	f.must(ruleO1, len(full.Beats) == 0, "a full read reports %+v to a reader that knows version %d", full.Beats,
		m.beats[a.ID()])
}

func commitsWakeNobody(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	m := f.watch(f.open())
	f.blocked(m, ruleO3, "commits", func() {
		for range 3 {
			a.commit(fence, appendOp("x"), put("k", "v"))
		}
	})
}

func contextPrompt(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	b := f.open()
	bell, m, t := f.bell(b), f.watch(b), f.tail(b)
	for call, block := range map[string]func(context.Context) error{
		"Observe": func(ctx context.Context) error {
			_, err := b.Observe(ctx, driver.ObserveQuery{Since: m.cursor})
			return err
		},
		"TailLog": func(ctx context.Context) error { _, err := b.TailLog(ctx, t.cursor, 10); return err },
	} {
		for i := range 5 {
			ctx, cancel := context.WithCancel(f.ctx)
			got := begin(func() error { return block(ctx) })
			if i == 0 {
				bell.looked()
			}
			f.waiting(got)
			if early, err := got.early(); early {
				f.fail(ruleO2, "%s without news returned: %v", call, err)
			}
			cancel()
			err := f.answered(got, ruleO2, "%s goes on for %v after its context was cancelled", call, f.patience())
			f.must(ruleX1, errors.Is(err, context.Canceled),
				"%s answers %v after its context was cancelled; want context.Canceled", call, err)
		}
		err := f.held(10*time.Millisecond, block)
		f.must(ruleX1, errors.Is(err, context.DeadlineExceeded),
			"%s answers %v at its deadline; want context.DeadlineExceeded", call, err)
	}
	a.commit(fence, appendOp("x"))
	f.must(ruleO2, t.until(map[driver.ShardID]driver.Seq{"s": 1}), "after cancelled calls TailLog does not go on")
	late := f.join("b")
	f.must(ruleO2, m.until(func() bool { return m.members[late.ID()].Node == "b" }), "after cancelled calls Observe does not go on")
}

// slowReaderBounded makes the same writes with a sleeping reader and without a reader, and compares
// how much the heap grows. A store in this process may keep all writes. A backend may keep some
// megabytes for readers, so the case fails only if the heap continues to grow after that.
func slowReaderBounded(f *fixture) {
	a := f.join("a")
	w := &appender{member: a, fence: a.acquire("s"), payload: make([]byte, min(32<<10, a.b.Info().Limits.WriteBytes))}
	slow, cancel := context.WithTimeout(f.ctx, time.Second)
	defer cancel()
	without, commits := w.round(func(n int) bool { // fewer commits on a slow store
		written := n * len(w.payload)
		return written >= 4<<20 || written >= 1<<20 && slow.Err() != nil
	})
	round := func() int64 {
		grown, _ := w.round(func(n int) bool { return n == commits })
		return grown
	}
	without = max(without, round())
	b := f.open()
	view, tail := f.watch(b), f.tail(b)
	written := int64(commits * len(w.payload))
	for asleep := written; ; asleep += written {
		with := round()
		if with-without < written/3 {
			break
		}
		f.must(ruleO2, asleep < 16<<20, "while a reader slept, %d bytes were appended and trimmed; the process still "+
			"grows by %d for each %d, and without a reader by %d", asleep, with, written, without)
	}
	full := f.state()
	f.must(ruleO2, view.until(func() bool { return view.same(full) }), "a slow reader does not arrive at the state")
	f.must(ruleO2, tail.until(map[driver.ShardID]driver.Seq{"s": driver.Seq(w.n)}),
		"a slow tail does not arrive at entry %d: %v", w.n, tail.at)
}

// appender appends to a shard and trims it.
type appender struct {
	*member
	fence   driver.Fence
	payload []byte
	n       driver.WriteNo
}

// round commits until enough(n) returns true after n commits. It returns the heap's growth and n.
func (w *appender) round(enough func(n int) bool) (grown int64, n int) {
	before := heap()
	for ; !enough(n); n++ {
		w.n++
		r := w.write(w.fence, w.n, driver.Op{Kind: driver.OpAppend, Value: w.payload}, trim(max(0, driver.Seq(w.n)-2)))
		w.f.setup("commit", r.Err)
		if w.n%20 == 0 {
			moved := w.transfer(w.fence, w.ID())
			w.f.setup("transfer", moved.Err)
			w.fence = moved.Fence
		}
	}
	if w.f.store.Compact != nil {
		w.f.setup("compact", w.f.store.Compact(w.f.ctx))
	}
	return heap() - before, n
}

// heap returns the size of the heap in use, in bytes. Because pending calls also hold memory, heap
// returns the smallest of several readings.
func heap() int64 {
	least := int64(math.MaxInt64)
	for range 4 {
		time.Sleep(10 * time.Millisecond)
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, int64(m.HeapAlloc))
	}
	return least
}

func idleIsQuiet(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	a.commit(fence, appendOp("x"))
	b := f.open()
	bell, m, t := f.bell(b), f.watch(b), f.tail(b)
	m.beats[a.ID()], _ = f.beatOf(a.ID())
	observed := begin(func() error { _, err := m.next(f.ctx); return err })
	tailed := begin(func() error { return t.next(f.ctx, 10) })
	bell.looked(observed, tailed)
	poll := b.Info().Limits.PollPeriod
	f.settled(poll)
	used, window := f.idleFor(400 * time.Millisecond)
	bell.ring()
	a.commit(fence, appendOp("y"))
	for what, got := range map[string]*call{"view": observed, "tail": tailed} {
		err := f.answered(got, ruleO3, "the reader of the %s, which was idle, is not told of a change", what)
		f.setup("read the "+what, err)
	}
	f.must(ruleO3, len(m.shards) == 2 && t.at["s"] == 2, "readers returned before there was anything to read: shards %v, "+
		"entries %v", m.shards, t.at)
	f.must(ruleO3, used.Writes == 0, "an idle namespace was written to %d times in %v", used.Writes, window)
	f.must(ruleO3, poll > 0 || used.Reads == 0, "an idle namespace was read %d times in %v, and is not polled", used.Reads,
		window)
	// The streams of views and of entries may each make one read at the start and one at the end of
	// the window.
	ample.AtLeast(ruled{f, ruleO3}, fmt.Sprintf("reading an idle namespace %d times", used.Reads), window,
		time.Duration(used.Reads/2-2)*poll)
	ample.AtLeast(ruled{f, ruleO3}, fmt.Sprintf("waiting for an idle namespace anew %d times", used.Waits), window,
		time.Duration((used.Waits-1)/maxWaits)*time.Second)
}

// maxWaits is the number of waits that an idle process may begin each second.
const maxWaits = 4

// idleFor waits for about d, and returns the calls to the store in that time.
func (f *fixture) idleFor(d time.Duration) (used Calls, window time.Duration) {
	start, before := time.Now(), f.store.Calls()
	for range ample.During(d, 10*time.Millisecond) {
		if f.ctx.Err() != nil {
			break
		}
	}
	after := f.store.Calls()
	return Calls{Reads: after.Reads - before.Reads, Writes: after.Writes - before.Writes,
		Waits: after.Waits - before.Waits}, time.Since(start)
}

// settled waits for several windows, until blocking calls have made their first reads and only
// polls are left.
func (f *fixture) settled(poll time.Duration) {
	for range 40 {
		used, _ := f.idleFor(100*time.Millisecond + 2*poll)
		if used.Waits == 0 && used.Writes == 0 && (poll > 0 || used.Reads == 0) {
			return
		}
	}
}

func longValuesLeftOut(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	sizes := []int{0, 100, 101, 1000, 99}
	var ops []driver.Op
	for i, n := range sizes {
		ops = append(ops, put(fmt.Sprintf("v/%d", i), strings.Repeat("v", n)))
	}
	a.commit(fence, ops...)
	for _, limit := range []int{0, 4, 100} {
		items, err := f.read().List(f.ctx, "s", "v/", limit, 100)
		want := len(sizes)
		if limit > 0 {
			want = min(want, limit)
		}
		f.must(ruleL2, err == nil && len(items) == want, "listing %d values of 100 bytes gives %d, %v; want %d", limit, len(items), err, want)
		for i, it := range items {
			f.must(ruleL2, it.Key == fmt.Sprintf("v/%d", i) && it.Version > 0, "item %d of the list is %.300q", i, fmt.Sprint(it))
			f.must(ruleD1, sizes[i] > 100 == (it.Damaged != nil) && (it.Damaged != nil || len(it.Value) == sizes[i]) && (it.Damaged == nil ||
				len(it.Value) == 0 && errors.Is(it.Damaged, driver.ErrDamaged)),
				"in a list of values up to 100 bytes, one of %d has %d bytes, and its damage is %v", sizes[i], len(it.Value), it.Damaged)
		}
	}
	_, err := f.read().List(f.ctx, "s", "v/", 1, -1)
	f.must(ruleE1, errors.Is(err, driver.ErrInvalid), "listing values of -1 bytes answers %v; want ErrInvalid", err)
	size := min(a.b.Info().Limits.WriteBytes-1000, 500<<10)
	n := driver.MaxListBytes/size + 2
	for i := range n {
		a.commit(fence, driver.Op{Kind: driver.OpPut, Key: fmt.Sprintf("w/%03d", i), Value: bytes.Repeat([]byte("w"), size)})
	}
	items, err := f.read().List(f.ctx, "s", "w/", n+1, size)
	f.must(ruleL2, err == nil && len(items) == n, "listing %d values of %d bytes gives %d, %v", n, size, len(items), err)
	for i, it := range items {
		fits := (i+1)*size <= driver.MaxListBytes
		f.must(ruleD1, fits == (it.Damaged == nil) && (!fits || len(it.Value) == size),
			"item %d of a list, each of %d bytes, has %d, and its damage is %v", i, size, len(it.Value), it.Damaged)
	}
}

func prefixNoCrossTalk(f *fixture) {
	a, b := f.join("a"), f.join("b")
	names := []driver.ShardID{"1", "10", "1.0", "1-0", "1_0", "100", "A", "a", "_1"}
	fences := map[driver.ShardID]driver.Fence{}
	for i, shard := range names {
		m := []*member{a, b}[i%2]
		fences[shard] = m.acquire(shard)
		m.commit(fences[shard], put("k", string(shard)), put("k/1", "x"), put("k0", "x"), appendOp(string(shard)))
	}
	for shard, fence := range fences {
		f.must(ruleA1, f.owner(shard) == seen(fence), "the record of shard %q is %+v; granted was %+v", shard,
			f.owner(shard), fence)
		item, log := f.get(shard, "k"), f.log(shard, 0)
		f.must(ruleL2, item != nil && string(item.Value) == string(shard) && len(log) == 1 &&
			string(log[0].Payload) == string(shard), "shard %q has the item %+v and the log %+v", shard, item, log)
	}
	for prefix, want := range map[string]int{"": 3, "k": 3, "k/": 1, "k0": 1, "k/1": 1, "K": 0} {
		items, err := f.read().List(f.ctx, "1", prefix, 0, 0)
		f.must(ruleL2, err == nil && len(items) == want, "listing %q gives %+v, %v; want %d items", prefix, items, err,
			want)
	}
	for limit, want := range map[int]string{1: "k", 2: "k k/1", 3: "k k/1 k0", 4: "k k/1 k0"} {
		items, err := f.read().List(f.ctx, "1", "k", limit, 0)
		var got []string
		for _, it := range items {
			got = append(got, it.Key)
		}
		f.must(ruleL2, err == nil && strings.Join(got, " ") == want, "listing %d items gives %q, %v; want %q", limit, got, err, want)
	}
	_, err := f.read().List(f.ctx, "1", "k", -1, 0)
	f.must(ruleE1, errors.Is(err, driver.ErrInvalid), "listing -1 items answers %v; want ErrInvalid", err)
	a.commit(fences["1"], del("k"), trim(1))
	a.release(fences["1"])
	f.must(ruleL2, f.get("10", "k") != nil && f.get("1", "k/1") != nil && len(f.log("10", 0)) == 1,
		"deleting in shard 1 deleted in shard 10, or other keys")
	f.must(ruleA1, f.owner("10") == seen(fences["10"]), "releasing shard 1 changed shard 10 to %+v", f.owner("10"))
}

func namespaceNoCrossTalk(f *fixture) {
	home := f.join("a")
	fence := home.acquire("s")
	home.commit(fence, appendOp("home"), put("k", "home"))
	m := f.watch(f.open())
	for _, suffix := range []string{"/s", "0", ".x", "/members"} {
		open := func() driver.Backend {
			b, err := f.tryOpen(func(ctx context.Context) (driver.Backend, error) {
				return f.store.OpenNamespace(ctx, suffix)
			})
			f.setup("open the namespace "+suffix, err)
			return b
		}
		b := open()
		f.must(ruleO1, b.Info().StoreID != home.b.Info().StoreID && b.Info().Namespace != home.b.Info().Namespace,
			"namespace %q shares name or identity with its neighbour", suffix)
		v, err := b.Observe(f.ctx, driver.ObserveQuery{})
		f.must(ruleO1, err == nil && len(v.Members) == 0 && len(v.Shards) == 0, "a new namespace %q has the state %+v, %v",
			suffix, v, err)
		tail := f.tail(b)
		f.must(ruleL4, len(tail.at) == 0, "a new namespace %q has the logs %v", suffix, tail.at)
		n := f.joinOn(b, "a")
		r := n.claim(driver.Claim{Shard: "s"})
		f.must(ruleA1, r.Err == nil, "a shard of namespace %q whose name is held in another answers %v", suffix, r.Err)
		w := n.write(r.Fence, 1, appendOp("other"), put("k", "other"))
		f.must(ruleA1, w.Err == nil, "a commit in namespace %q answers %v", suffix, w.Err)
		f.must(ruleL4, tail.until(map[driver.ShardID]driver.Seq{"s": 1}) && string(tail.got["s"][0].Payload) == "other",
			"the tail of namespace %q has %+v", suffix, tail.got)
	}
	f.must(ruleA1, f.owner("s") == seen(fence) && string(f.get("s", "k").Value) == "home" && len(f.log("s", 0)) == 1,
		"writes in other namespaces changed this one's shard to %+v, %+v", f.owner("s"), f.get("s", "k"))
	home.acquire("after")
	f.must(ruleO1, m.until(func() bool { return m.shards["after"].Session == home.ID() }) && len(m.members) == 1 &&
		len(m.shards) == 2, "the view has other namespaces' members %v or shards %v", m.members, m.shards)
}
