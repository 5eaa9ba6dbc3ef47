package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

func logCases() []testCase {
	const area = "Log"
	return []testCase{
		{Area: area, Property: "Contiguous", Rules: []rule{ruleL1, ruleL2}, run: logContiguous,
			Shows: "entries count from 1 without gaps; pages begin after the entry named"},
		{Area: area, Property: "TokensNonDecreasing", Rules: []rule{ruleL1}, run: tokensNonDecreasing,
			Shows: "entries carry their lease's token, which never decreases"},
		{Area: area, Property: "WrongNumberConflicts", Rules: []rule{ruleF2, ruleL1}, run: wrongNumberConflicts,
			Shows: "an append that expects another head is refused and uses no number"},
		{Area: area, Property: "NoGapUnderConcurrency", Rules: []rule{ruleL1, ruleL2, ruleF1}, run: noGapUnderConcurrency,
			Shows: "under concurrent commits readers see prefixes without gaps"},
		{Area: area, Property: "FirstStartedLastCommitted", Rules: []rule{ruleL4}, run: firstStartedLastCommitted,
			Shows: "a tail misses no entry when commits overlap and finish out of order"},
		{Area: area, Property: "TailBlocksAndWakes", Rules: []rule{ruleL4, ruleO2}, run: tailBlocksAndWakes,
			Shows: "a tail waits for the next entry and returns it"},
		{Area: area, Property: "TailResumes", Rules: []rule{ruleL4}, run: tailResumes,
			Shows: "a cursor resumes where it was taken, in another process too"},
		{Area: area, Property: "TailAllShards", Rules: []rule{ruleL4}, run: tailAllShards,
			Shows: "one tail has every shard's entries, later shards included, in bounded pages"},
		{Area: area, Property: "ResetCarriesHeads", Rules: []rule{ruleL4}, run: resetCarriesHeads,
			Shows: "an empty or foreign cursor gets every shard's head"},
		{Area: area, Property: "TailNeverSkipsTrimmed", Rules: []rule{ruleL4}, run: tailNeverSkipsTrimmed,
			Shows: "a tail whose next entries were trimmed gets a reset"},
		{Area: area, Property: "TailResetAfterCompaction", Rules: []rule{ruleL4}, Needs: []string{"Compact"},
			run:   tailResetAfterCompaction,
			Shows: "after a compaction a tail gets every entry or a reset"},
		{Area: area, Property: "TrimmedIsReported", Rules: []rule{ruleL3}, run: trimmedIsReported,
			Shows: "a read below the oldest entry names the oldest"},
		{Area: area, Property: "SeqSurvivesFullTrim", Rules: []rule{ruleL3, ruleL1}, run: seqSurvivesFullTrim,
			Shows: "numbers continue after a full trim and a new owner"},
		{Area: area, Property: "NonceResolvesUnknown", Rules: []rule{ruleF1}, run: nonceResolvesUnknown,
			Shows: "the head's number, nonce and token settle an unknown outcome"},
		{Area: area, Property: "MaxSizeEntries", Rules: []rule{ruleL2}, run: maxSizeEntries,
			Shows: "entries of the largest size are read and tailed in pages"},
	}
}

func logContiguous(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	page, err := f.read().ReadLog(f.ctx, "none", 0, 10)
	f.must(ruleL2, err == nil && len(page.Entries) == 0 && page.Head == driver.Head{},
		"the log of a shard without a record reads as %+v, %v", page, err)
	const entries = 30
	for i := 0; i < entries; i += 3 {
		a.commit(fence, appendOp(fmt.Sprint(i+1)), put("k", "v"), appendOp(fmt.Sprint(i+2)), appendOp(fmt.Sprint(i+3)))
	}
	for _, read := range []struct {
		after driver.Seq
		max   int
	}{{0, 0}, {0, 1}, {0, 7}, {0, 1000}, {10, 5}, {29, 10}, {30, 10}, {31, 10}} {
		page, err := f.read().ReadLog(f.ctx, "s", read.after, read.max)
		f.must(ruleL2, err == nil, "reading %d entries after %d answers %v", read.max, read.after, err)
		f.must(ruleL2, page.Head.Seq == entries && page.Head.Oldest == 1 && page.Head.Number == 10,
			"a page's head is %+v after %d entries in 10 commits", page.Head, entries)
		f.must(ruleL2, len(page.Entries) <= read.max, "reading %d entries gave %d", read.max, len(page.Entries))
		f.must(ruleL2, len(page.Entries) > 0 || read.max == 0 || read.after >= entries,
			"reading %d entries after %d gave none", read.max, read.after)
		for i, e := range page.Entries {
			want := read.after + driver.Seq(i) + 1
			f.must(ruleL2, e.Seq == want, "entry %d of the page after %d is number %d", i, read.after, e.Seq)
			f.must(ruleL1, string(e.Payload) == fmt.Sprint(want) && e.Shard == "s" && e.Token == fence.Token &&
				e.Number == driver.WriteNo((want+2)/3),
				"entry %d of the page after %d is %+v (%q)", i, read.after, e, e.Payload)
		}
	}
}

func tokensNonDecreasing(f *fixture) {
	a, b := f.join("a"), f.join("b")
	var want []driver.Token
	for i := range 6 {
		m := []*member{a, b}[i%2]
		fence := m.preempt("s")
		for range 2 {
			m.commit(fence, appendOp("x"))
			want = append(want, fence.Token)
		}
	}
	log := f.log("s", 0)
	f.must(ruleL1, len(log) == len(want), "%d entries were appended, %d are in the log", len(want), len(log))
	for i, e := range log {
		f.must(ruleL1, e.Token == want[i], "entry %d has token %d; its lease had %d", e.Seq, e.Token, want[i])
	}
}

func wrongNumberConflicts(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	for n := driver.WriteNo(1); n <= 5; n++ {
		for range 3 {
			r := a.write(fence, n+1, appendOp("wrong"))
			f.must(ruleF2, errors.Is(r.Err, driver.ErrConflict), "an append with number %d after %d commits answers %v",
				n+1, n-1, r.Err)
			r = a.write(fence, n, appendOp("wrong"), putIf("k", "v", 77))
			f.must(ruleF2, errors.Is(r.Err, driver.ErrConflict), "an append with a failed precondition answers %v", r.Err)
		}
		r := a.write(fence, n, appendOp("x"))
		f.must(ruleL1, r.Err == nil && r.Head.Seq == driver.Seq(n), "after refused appends commit %d has the head %+v, %v",
			n, r.Head, r.Err)
	}
	for i, e := range f.log("s", 0) {
		f.must(ruleL1, e.Seq == driver.Seq(i+1) && string(e.Payload) == "x", "entry %d of the log is %+v", i, e)
	}
}

func noGapUnderConcurrency(f *fixture) {
	const writers, shard = 4, driver.ShardID("s")
	rec := f.recorder()
	a := f.join("a").recorded(rec)
	fence := a.acquire(shard)
	members := []*member{a, a, f.join("b").recorded(rec), f.join("c").recorded(rec)}
	var next atomic.Int64
	var read sync.WaitGroup
	done := make(chan struct{})
	reader := f.open()
	read.Go(func() { f.readPrefixes(reader, shard, done) })
	f.rounds(150, 1500*time.Millisecond, func(int) {
		together(times(writers, func(i int) {
			for range 3 {
				n := driver.WriteNo(next.Load() + 1)
				if r := members[i].write(fence, n, appendUnique()); r.Err == nil {
					next.Store(int64(r.Head.Number))
				} else if !errors.Is(r.Err, driver.ErrConflict) {
					f.broken(ruleF1, "a commit that raced others answers %v; want success or ErrConflict", r.Err)
				}
			}
		})...)
		next.Store(int64(f.head(shard).Number))
	})
	close(done)
	read.Wait()
	if accepted(rec, shard) == 0 {
		f.Errorf("%s cannot be judged: no commit was accepted", ruleL1)
	}
	f.judge(rec, shard)
}

// readPrefixes reads a log until done is closed, and checks that each page continues where the
// previous one ended.
func (f *fixture) readPrefixes(b driver.Backend, shard driver.ShardID, done <-chan struct{}) {
	var at driver.Seq
	var token driver.Token
	for ended := false; ; {
		select {
		case <-done:
			ended = true
		default:
		}
		page, err := b.ReadLog(f.ctx, shard, at, 50)
		if err != nil {
			f.broken(ruleL2, "reading after entry %d beside commits answers %v", at, err)
			return
		}
		for _, e := range page.Entries {
			if e.Seq != at+1 || e.Token < token {
				f.broken(ruleL2, "a page after entry %d with token %d goes on with entry %d of token %d", at, token, e.Seq,
					e.Token)
				return
			}
			at, token = e.Seq, e.Token
		}
		if page.Head.Seq < at {
			f.broken(ruleL2, "a page that ends with entry %d has a head of %d", at, page.Head.Seq)
			return
		}
		if ended && len(page.Entries) == 0 {
			return
		}
	}
}

// tailer follows every shard's log, and checks the order of the entries.
type tailer struct {
	f      *fixture
	b      driver.Backend
	cursor driver.Cursor
	at     map[driver.ShardID]driver.Seq
	got    map[driver.ShardID][]driver.Entry
	resets int
}

// tail returns a new tailer that is up to date.
func (f *fixture) tail(b driver.Backend) *tailer {
	f.t.Helper()
	t := &tailer{f: f, b: b, at: map[driver.ShardID]driver.Seq{}, got: map[driver.ShardID][]driver.Entry{}}
	f.setup("tail", t.next(f.ctx, 100))
	return t
}

// next reads one page of the tail. After a reset, it uses ReadLog to catch up.
func (t *tailer) next(ctx context.Context, most int) error {
	page, err := t.b.TailLog(ctx, t.cursor, most)
	if err != nil {
		return err
	}
	if page.Cursor == "" {
		t.f.broken(ruleL4, "a page of the tail has an empty cursor")
	}
	if page.Reset {
		t.resets++
		if len(page.Entries) > 0 {
			t.f.broken(ruleL4, "a reset carries %d entries; want heads only", len(page.Entries))
		}
		for _, h := range page.Heads {
			if err := t.catchUp(ctx, h); err != nil {
				return err
			}
		}
	}
	if n := beforeLastCommit(page.Entries); len(page.Entries) > most && n >= most {
		t.f.broken(ruleL4, "a page of about %d entries has %d, and %d without those of its last commit", most,
			len(page.Entries), n)
	}
	for _, e := range page.Entries {
		t.take(e)
	}
	t.cursor = page.Cursor
	return nil
}

// beforeLastCommit returns the number of entries on a page before those of its last commit. A store
// may keep all entries of a commit on one page.
func beforeLastCommit(page []driver.Entry) int {
	n := len(page)
	for n > 0 && page[n-1].Shard == page[len(page)-1].Shard && page[n-1].Number == page[len(page)-1].Number {
		n--
	}
	return n
}

func (t *tailer) take(e driver.Entry) {
	switch at := t.at[e.Shard]; {
	case e.Seq == at+1:
		t.at[e.Shard] = e.Seq
		t.got[e.Shard] = append(t.got[e.Shard], e)
	case e.Seq > at+1:
		t.f.broken(ruleL4, "the tail of shard %q goes from entry %d to entry %d", e.Shard, at, e.Seq)
		t.at[e.Shard] = e.Seq
	}
}

func (t *tailer) catchUp(ctx context.Context, h driver.ShardHead) error {
	for t.at[h.Shard] < h.Head.Seq {
		page, err := t.b.ReadLog(ctx, h.Shard, t.at[h.Shard], 100)
		var trimmed *driver.TrimmedError
		if errors.As(err, &trimmed) {
			t.at[h.Shard] = trimmed.Oldest - 1
			continue
		}
		if err != nil {
			return err
		}
		if len(page.Entries) == 0 {
			t.f.broken(ruleL4, "a reset reports entry %d as the head of shard %q; the log ends at %d", h.Head.Seq, h.Shard,
				t.at[h.Shard])
			return nil
		}
		for _, e := range page.Entries {
			t.take(e)
		}
	}
	return nil
}

// The result is true if every shard reaches its sequence number in want within the time limit.
func (t *tailer) until(want map[driver.ShardID]driver.Seq) bool {
	ctx, cancel := context.WithTimeout(t.f.ctx, t.f.prompt(t.b))
	defer cancel()
	for {
		behind := false
		for shard, seq := range want {
			behind = behind || t.at[shard] < seq
		}
		if !behind {
			return true
		}
		if err := t.next(ctx, 50); err != nil {
			return false
		}
	}
}

func firstStartedLastCommitted(f *fixture) {
	const writers = 6
	m := f.join("a")
	fences := m.hold(writers)
	follow := f.tail(f.open())
	limit := m.b.Info().Limits.WriteBytes
	var following sync.WaitGroup
	ctx, cancel := context.WithCancel(f.ctx)
	following.Go(func() {
		for {
			if err := follow.next(ctx, 20); err != nil {
				if ctx.Err() == nil {
					f.broken(ruleL4, "the tail answers %v", err)
				}
				return
			}
		}
	})
	written := make([]driver.Seq, writers)
	f.rounds(200, 1500*time.Millisecond, func(i int) {
		together(times(writers, func(k int) {
			size := 1 << rand.N(7)
			if k == i%writers {
				size = min(64<<10, limit/2) // the size of an entry for the slow reader
			}
			n := written[k] + 1
			r := m.write(fences[k], driver.WriteNo(n), driver.Op{Kind: driver.OpAppend, Value: make([]byte, size)})
			if r.Err != nil {
				f.Errorf("a commit beside others answers %v", r.Err)
				return
			}
			written[k] = n
		})...)
	})
	want := map[driver.ShardID]driver.Seq{}
	for k, fence := range fences {
		want[fence.Shard] = written[k]
	}
	cancel()
	following.Wait()
	if !follow.until(want) {
		f.fail(ruleL4, "the tail stopped at %v; written were %v", follow.at, want)
	}
}

func tailBlocksAndWakes(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	a.commit(fence, appendOp("before"))
	b := f.open()
	bell, t := f.bell(b), f.tail(b)
	for i := range 5 {
		got := begin(func() error { return t.next(f.ctx, 10) })
		if i == 0 {
			bell.looked()
		}
		f.waiting(got)
		if early, err := got.early(); early {
			f.fail(ruleL4, "the tail of a log without news returned: %v, now at %v", err, t.at)
		}
		a.commit(fence, appendOp("news"))
		err := f.answered(got, ruleO2, "a tail does not return after a commit")
		f.must(ruleL4, err == nil, "the tail answers %v", err)
		f.must(ruleL4, t.at["s"] == driver.Seq(i+2), "the tail returned without the new entry: it is at %d", t.at["s"])
	}
}

func tailResumes(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	t := f.tail(f.open())
	for i := range 5 {
		if i%2 == 1 {
			t.b = f.open()
		}
		a.commit(fence, appendOp("x"), appendOp("y"))
		a.commit(fence, appendOp("z"))
		f.must(ruleL4, t.until(map[driver.ShardID]driver.Seq{"s": f.head("s").Seq}),
			"the tail resumed at entry %d of %d did not go on", t.at["s"], f.head("s").Seq)
	}
	f.must(ruleL4, len(t.got["s"]) == 15, "15 entries were appended, the tail had %d", len(t.got["s"]))
}

func tailAllShards(f *fixture) {
	a := f.join("a")
	fences := a.hold(12)
	t := f.tail(f.open())
	want := map[driver.ShardID]driver.Seq{}
	for round := range 3 {
		fences = append(fences, a.acquire(driver.ShardID(fmt.Sprintf("later-%d", round))))
		for _, fence := range fences {
			want[fence.Shard] = a.commit(fence, appendOp("x"), appendOp("y")).Seq
		}
		f.setup("tail", t.next(f.ctx, 5))
		f.must(ruleL4, t.until(want), "the tail stopped at %v; written were %v", t.at, want)
	}
	for shard, entries := range t.got {
		for i, e := range entries {
			f.must(ruleL4, e.Seq == driver.Seq(i+1) && e.Token > 0 && len(e.Payload) == 1,
				"shard %q: entry %d of the tail is %+v", shard, i, e)
		}
	}
}

func resetCarriesHeads(f *fixture) {
	a := f.join("a")
	want := map[driver.ShardID]driver.Head{}
	for _, fence := range a.hold(5) {
		want[fence.Shard] = a.commit(fence, appendOp("x"), appendOp("y"))
	}
	emptied := a.acquire("trimmed")
	a.commit(emptied, appendOp("x"))
	want["trimmed"] = a.commit(emptied, trim(1))
	for _, cursor := range []driver.Cursor{"", "not a cursor", "\x00\xff", "9999999999999999999999",
		driver.Cursor(bytes.Repeat([]byte("7."), 5000))} {
		page, err := f.read().TailLog(f.ctx, cursor, 10)
		if cursor != "" && errors.Is(err, driver.ErrInvalid) {
			continue
		}
		f.must(ruleL4, err == nil, "a tail from the cursor %.20q answers %v; want a reset or ErrInvalid", cursor, err)
		f.must(ruleL4, page.Reset && len(page.Entries) == 0 && page.Cursor != "",
			"a tail from the cursor %.20q has Reset %v, %d entries and cursor %q", cursor, page.Reset,
			len(page.Entries), page.Cursor)
		got := map[driver.ShardID]driver.Head{}
		for _, h := range page.Heads {
			got[h.Shard] = h.Head
		}
		for shard, head := range want {
			f.must(ruleL4, got[shard] == head, "a reset has the head %+v of shard %q; it is %+v", got[shard], shard, head)
		}
	}
}

func tailNeverSkipsTrimmed(f *fixture) {
	a := f.join("a")
	fence, other := a.acquire("s"), a.acquire("other")
	t := f.tail(f.open())
	a.commit(fence, appendOp("1"), appendOp("2"), appendOp("3"))
	a.commit(other, appendOp("x"))
	a.commit(fence, trim(2))
	a.commit(fence, appendOp("4"))
	f.must(ruleL4, t.until(map[driver.ShardID]driver.Seq{"s": 4, "other": 1}),
		"the tail over trimmed entries stopped at %v", t.at)
	f.must(ruleL4, len(t.got["s"]) == 4 || t.resets > 1,
		"the tail left out trimmed entries without a reset: it had %d of 4", len(t.got["s"]))
	f.must(ruleL4, len(t.got["other"]) == 1, "the tail had %d entries of the other shard; want 1", len(t.got["other"]))
}

func tailResetAfterCompaction(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	t := f.tail(f.open())
	for range 3 {
		a.commit(fence, appendOp("x"), appendOp("y"))
		f.setup("compact", f.store.Compact(f.ctx))
		a.commit(fence, appendOp("z"))
		t.b = f.open()
		f.must(ruleL4, t.until(map[driver.ShardID]driver.Seq{"s": f.head("s").Seq}),
			"after a compaction the tail stopped at %v", t.at)
	}
	f.must(ruleL4, len(t.got["s"]) == 9, "9 entries were appended and none trimmed; after compactions the tail had %d",
		len(t.got["s"]))
}

func trimmedIsReported(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	a.commit(fence, appendOp("1"), appendOp("2"), appendOp("3"), appendOp("4"))
	for _, through := range []driver.Seq{2, 1, 4} {
		head := a.commit(fence, trim(through))
		oldest := max(through, 2) + 1
		f.must(ruleL3, head.Oldest == oldest && head.Seq == 4, "trimming through %d gives the head %+v; want oldest %d",
			through, head, oldest)
		for after := driver.Seq(0); after <= 5; after++ {
			page, err := f.read().ReadLog(f.ctx, "s", after, 10)
			if after+1 < oldest {
				var trimmed *driver.TrimmedError
				f.must(ruleL3, errors.As(err, &trimmed) && errors.Is(err, driver.ErrTrimmed),
					"reading after %d where the oldest entry is %d answers %+v, %v; want a *TrimmedError", after,
					oldest, page, err)
				f.must(ruleL3, trimmed.Oldest == oldest && trimmed.Shard == "s", "the *TrimmedError is %+v; want oldest %d",
					trimmed, oldest)
			} else {
				want := max(0, 4-int(after))
				f.must(ruleL3, err == nil && len(page.Entries) == want && page.Head == head,
					"reading after %d where the oldest entry is %d answers %+v, %v; want %d entries", after, oldest,
					page, err, want)
			}
		}
		page, err := f.read().ReadLog(f.ctx, "s", 0, 0)
		f.must(ruleL3, err == nil && page.Head == head, "reading the head of a trimmed log answers %+v, %v", page, err)
	}
	r := a.write(fence, f.head("s").Number+1, trim(5))
	f.must(ruleL3, errors.Is(r.Err, driver.ErrConflict) || errors.Is(r.Err, driver.ErrInvalid),
		"a trim beyond the log's head answers %v; want an error", r.Err)
}

func seqSurvivesFullTrim(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	last := a.commit(fence, appendOp("1"), appendOp("2"), appendOp("3"))
	for i := range 3 {
		trimmed := a.commit(fence, trim(last.Seq))
		f.must(ruleL3, trimmed.Oldest == last.Seq+1 && trimmed.Seq == last.Seq,
			"after everything was trimmed the head is %+v", trimmed)
		f.setup("close", a.Close(f.ctx))
		a, b = b, f.join(fmt.Sprint("c", i))
		r := a.claim(driver.Claim{Shard: "s", Seen: f.owner("s")})
		f.must(ruleL3, r.Err == nil && r.Head == trimmed,
			"a grant after everything was trimmed answers head %+v, %v; want %+v", r.Head, r.Err, trimmed)
		fence = r.Fence
		w := a.write(fence, trimmed.Number+1, trim(trimmed.Seq), appendOp("next"))
		f.must(ruleL3, w.Err == nil && w.Head.Seq == last.Seq+1 && w.Head.Number == trimmed.Number+1,
			"the entry after everything was trimmed has the head %+v, %v; the last was %d", w.Head, w.Err, last.Seq)
		log := f.log("s", last.Seq)
		f.must(ruleL1, len(log) == 1 && log[0].Seq == last.Seq+1 && log[0].Token == fence.Token,
			"the log after everything was trimmed is %+v", log)
		last = w.Head
	}
}

func nonceResolvesUnknown(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	for n := driver.WriteNo(1); n <= 5; n++ {
		w := newWrite(fence, n, put("k", "v"), appendOp("x"))
		f.setup("commit", a.writeCtx(f.ctx, w).Err)
		head := f.head("s")
		f.must(ruleF1, head.Number == n && head.Nonce == w.Nonce && head.Token == fence.Token,
			"after commit %d with nonce %d and token %d the head is %+v", n, w.Nonce, fence.Token, head)
		refused := a.write(fence, n, put("k", "x"))
		f.must(ruleF1, refused.Err != nil && f.head("s") == head, "a refused commit (%v) changed the head to %+v",
			refused.Err, f.head("s"))
		a.release(fence)
		fence = a.acquire("s")
		f.must(ruleF1, f.head("s") == head, "a release and a grant changed the head to %+v", f.head("s"))
	}
}

func maxSizeEntries(f *fixture) {
	a := f.join("a")
	fence := a.acquire("s")
	t := f.tail(f.open())
	size := a.b.Info().Limits.WriteBytes
	const entries = 4
	for i := range entries {
		a.commit(fence, driver.Op{Kind: driver.OpAppend, Value: bytes.Repeat([]byte{byte(i)}, size)})
	}
	f.must(ruleL2, t.until(map[driver.ShardID]driver.Seq{"s": entries}), "the tail of entries of %d bytes stopped at %v",
		size, t.at)
	for from, got := range map[string][]driver.Entry{"log": f.log("s", 0), "tail": t.got["s"]} {
		f.must(ruleL2, len(got) == entries, "the %s has %d of %d entries of %d bytes", from, len(got), entries, size)
		for i, e := range got {
			f.must(ruleL2, len(e.Payload) == size && e.Payload[0] == byte(i) && e.Payload[size-1] == byte(i),
				"entry %d of the %s has %d bytes; want %d", e.Seq, from, len(e.Payload), size)
		}
	}
}
