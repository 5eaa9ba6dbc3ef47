package conformance

import (
	"fmt"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/grants"
)

func historyCases() []testCase {
	const area = "History"
	return []testCase{
		{Area: area, Property: "LastLeases", Rules: []rule{ruleR3}, run: lastLeases,
			Shows: "after each change of owner the last four leases of a shard have node, times and end"},
		{Area: area, Property: "Unwatched", Rules: []rule{ruleR3}, run: unwatchedHistory,
			Shows: "writers that read a shard's record, or have just written it, keep its history"},
		{Area: area, Property: "Damaged", Rules: []rule{ruleR3, ruleD1}, Needs: []string{"Tamper"}, run: damagedHistory,
			Shows: "a history that is damaged is reported, bars no grant, and continues"},
		{Area: area, Property: "CostsNoCall", Rules: []rule{ruleR3}, Needs: []string{"Calls"}, alone: true, run: historyCostsNoCall,
			Shows: "hand-overs of a shard cost as many calls as those of a lock, which has no history"},
	}
}

// historian returns the store's history of a shard.
func (f *fixture) historian(shard driver.ShardID) ([]driver.Grant, error) {
	f.t.Helper()
	h, ok := f.read().(driver.Historian)
	if !ok {
		f.skip("the backend does not remember leases (driver.Historian)")
	}
	return h.History(f.ctx, shard)
}

// history checks that the times in a shard's history are within this case, and returns the history
// without them.
func (f *fixture) history(shard driver.ShardID, begin time.Time) []driver.Grant {
	f.t.Helper()
	all, err := f.historian(shard)
	f.setup("read the history", err)
	begin, last := begin.Truncate(time.Second), time.Time{}
	for i := range all {
		g := &all[i]
		f.must(ruleR3, !g.Since.Before(begin) && !g.Since.Before(last),
			"the lease of %s has begun at %v, after %v, in a case that began at %v", g.Node, g.Since, last, begin)
		f.must(ruleR3, g.Until.IsZero() == (g.End == "") && (g.End == "" || !g.Until.Before(g.Since)),
			"the lease of %s from %v ended %q at %v", g.Node, g.Since, g.End, g.Until)
		last = g.Since
		if g.End != "" {
			last = g.Until
		}
		g.Since, g.Until = time.Time{}, time.Time{}
	}
	return all
}

func lastLeases(f *fixture) {
	begin := time.Now()
	long := "n-" + strings.Repeat("0123456789", 12)
	a, b, c := f.join("a"), f.join("b"), f.join(long)
	var want []driver.Grant
	check := func(step string) {
		f.t.Helper()
		got := f.history("s", begin)
		f.must(ruleR3, fmt.Sprint(got) == fmt.Sprint(want[max(0, len(want)-4):]), "after %s the history is %v; want %v", step, got, want)
	}
	ends := func(end driver.End, node string) {
		if n := len(want); n > 0 && want[n-1].End == "" {
			want[n-1].End = end
		}
		if node != "" {
			want = append(want, driver.Grant{Node: grants.Node(node)})
		}
	}
	check("nothing")
	look := func() { // core observes before it claims or transfers a shard
		for _, m := range []*member{a, b, c} {
			f.stateOf(m.b)
		}
	}
	look()
	fence := a.acquire("s")
	ends("", "a")
	check("the first claim")
	for range 4 { // more often than a store can record
		a.release(fence)
		ends(driver.EndReleased, "")
		check("a release")
		fence = b.claim(driver.Claim{Shard: "s", Seen: driver.Owner{Token: fence.Token}}).Fence
		ends("", "b")
		check("a claim of a free shard")
		r := b.transfer(fence, c.ID())
		f.setup("transfer", r.Err)
		ends(driver.EndPassed, long)
		check("a hand-over")
		r = c.transfer(r.Fence, c.ID())
		f.setup("transfer", r.Err)
		ends(driver.EndRenewed, long)
		check("a transfer to itself")
		r = b.claim(driver.Claim{Shard: "s", Seen: seen(r.Fence), Preempt: true})
		f.setup("preempt", r.Err)
		ends(driver.EndPreempted, "b")
		check("a preemption")
		dead := f.join("dead")
		look()
		r = b.transfer(r.Fence, dead.ID())
		f.setup("transfer", r.Err)
		ends(driver.EndPassed, "dead")
		f.evict(dead)
		check("an eviction, which ends no lease by itself")
		fence = a.claim(driver.Claim{Shard: "s", Seen: seen(r.Fence)}).Fence
		ends(driver.EndGone, "a")
		check("a takeover")
	}
	a.commit(fence, driver.Op{Kind: driver.OpAppend, Value: []byte("x")})
	check("a commit")
	lock := a.acquire(lockName)
	held := f.history(lockName, begin)
	a.release(lock)
	all := append(held, f.history(lockName, begin)...)
	f.must(ruleR3, len(all) == 0, "a lock has the history %v", all)
}

// unwatchedHistory tests the history of a shard whose writers observe nothing.
func unwatchedHistory(f *fixture) {
	begin := time.Now()
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	for range 2 { // immediately, before any watch can deliver changes
		r := a.transfer(fence, a.ID())
		f.setup("transfer", r.Err)
		fence = r.Fence
	}
	a.release(fence)
	r := b.claim(driver.Claim{Shard: "s", Seen: driver.Owner{Token: fence.Token}})
	f.setup("claim", r.Err)
	want := []driver.Grant{{Node: "a", End: driver.EndRenewed}, {Node: "a", End: driver.EndRenewed}, {Node: "a", End: driver.EndReleased}, {Node: "b"}}
	got := f.history("s", begin)
	f.must(ruleR3, fmt.Sprint(got) == fmt.Sprint(want), "the history is %v; want %v", got, want)
}

func damagedHistory(f *fixture) {
	a, b := f.join("a"), f.join("b")
	fence := a.acquire("s")
	a.commit(fence, appendOp("x"))
	a.release(fence)
	f.setup("tamper", f.store.Tamper(f.ctx, CorruptHistory, "s"))
	all, err := f.historian("s")
	f.must(ruleD1, len(all) == 0 && isDamaged(err, "s"), "a damaged history is %v, %v; want a DamagedError", all, err)
	r := b.claim(driver.Claim{Shard: "s", Seen: f.owner("s")})
	f.must(ruleD1, r.Err == nil, "a shard whose history is damaged is refused: %v", r.Err)
	f.must(ruleD1, b.write(r.Fence, r.Head.Number+1, appendOp("y")).Err == nil, "a commit beside a damaged history is refused")
	b.release(r.Fence)
	all, err = f.historian("s")
	f.must(ruleD1, err == nil || isDamaged(err, "s"), "reading a history with an older damage answers %v", err)
	last := driver.Grant{}
	if len(all) > 0 {
		last = all[len(all)-1]
	}
	f.must(ruleR3, last.Node == "b" && last.End == driver.EndReleased, "the history goes on with %v, %v", all, err)
}

// historyCostsNoCall compares how many calls the hand-overs of a shard and of a lock need.
func historyCostsNoCall(f *fixture) {
	const rounds = 8
	f.history("s", time.Now())
	a, b := f.join("a"), f.join("b")
	fences := map[driver.ShardID]driver.Fence{"s": a.acquire("s"), lockName: a.acquire(lockName)}
	calls := map[driver.ShardID]int64{}
	for range rounds {
		for shard, fence := range fences {
			before := f.store.Calls()
			r := a.transfer(fence, b.ID())
			f.setup("transfer", r.Err)
			after := f.store.Calls()
			calls[shard] += after.Reads + after.Writes - before.Reads - before.Writes
			fences[shard] = r.Fence
		}
		a, b = b, a
	}
	f.must(ruleR3, calls["s"] < calls[lockName]+rounds/2, "%d hand-overs of a shard cost %d calls, and of a lock, which has no history, %d",
		rounds, calls["s"], calls[lockName])
}
