package conformance

import (
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// rollBack makes the store discard the writes made by lose, and report a different history.
func (f *fixture) rollBack(lose func()) {
	f.t.Helper()
	restore, err := f.store.Snapshot(f.ctx)
	f.setup("snapshot", err)
	lose()
	f.setup("restore", restore(f.ctx))
	f.setup("fork", f.store.Fork(f.ctx))
}

// forkedStore tests a fork after which processes that know nothing about the store call it first.
func forkedStore(f *fixture) {
	a, b := f.join("a"), f.join("b")
	kept := a.acquire("s")
	a.commit(kept, appendOp("x"))
	var late *member
	var newest driver.Fence
	f.rollBack(func() {
		late = f.join("late")
		late.acquire("t")
		f.join("later")
		f.join("last")
		newest = b.preempt("s")
		for range 3 {
			a.beat()
			b.beat()
			b.commit(newest, appendOp("y"))
		}
		_, err := a.b.Observe(f.ctx, driver.ObserveQuery{})
		f.setup("observe", err)
	})

	fresh := f.join("fresh")
	r := fresh.claim(driver.Claim{Shard: "t"})
	f.must(ruleI2, r.Err == nil, "a claim on a shard whose only grant was lost in a failover answers %v", r.Err)
	f.must(ruleI2, r.Fence.Token > newest.Token, "token %d was granted after a failover; token %d had been granted before",
		r.Fence.Token, newest.Token)
	for _, m := range []*member{a, b, late} {
		var err error
		f.retry(func() error {
			err = m.Beat(f.ctx)
			return err
		})
		want := error(nil)
		if m == late {
			want = driver.ErrSessionLost
		}
		f.must(ruleI2, errors.Is(err, want), "a heartbeat of session %s after a failover answers %v; want %v", m.node, err,
			want)
	}
	c := a.write(kept, 2, appendOp("z"))
	f.must(ruleI2, errors.Is(c.Err, driver.ErrFenced), "a commit under a lease of before a failover answers %v; want "+
		"ErrFenced", c.Err)

	var v *driver.View
	f.retry(func() (err error) {
		v, err = a.b.Observe(f.ctx, driver.ObserveQuery{})
		return err
	})
	f.must(ruleI2, v != nil && v.Reset, "a full read after a failover fails")
	f.must(ruleI2, v.Floor >= newest.Token, "the floor after a failover is %d; token %d had been granted before", v.Floor,
		newest.Token)
	owner := ownerIn(v, "s")
	f.must(ruleI2, owner.Session == a.ID() && owner.Token > newest.Token,
		"the record of a lease of before a failover is %+v; want session %s and a token above %d", owner, a.ID(),
		newest.Token)
	for range 2 {
		again := b.claim(driver.Claim{Shard: "u", Seen: driver.Owner{Token: v.Floor}})
		f.must(ruleI2, again.Err == nil && again.Fence.Token > r.Fence.Token,
			"a claim on a shard that the store forgot, seen free with the floor %d, answers %+v, %v", v.Floor,
			again.Fence, again.Err)
	}
}

// forkedStoreAware tests a fork after which a process that knew the store makes the first claim.
// The store later loses this failover too, and another failover follows.
func forkedStoreAware(f *fixture) {
	a, b := f.join("a"), f.join("b")
	granted := map[driver.Token]bool{a.acquire("s").Token: true}
	restore, err := f.store.Snapshot(f.ctx)
	f.setup("snapshot", err)
	granted[b.preempt("s").Token] = true
	for range 2 {
		f.setup("restore", restore(f.ctx))
		f.setup("fork", f.store.Fork(f.ctx))
		first := a.claimCtx(f.ctx, driver.Claim{Shard: "t"})
		f.must(ruleI2, first.Err != nil || !granted[first.Fence.Token],
			"the first claim after a failover is granted token %d, which was granted before", first.Fence.Token)
		r := a.claim(driver.Claim{Shard: "t"})
		f.must(ruleI2, r.Err == nil, "claims after a failover answer %v", r.Err)
		f.must(ruleI2, !granted[r.Fence.Token] || r.Fence == first.Fence,
			"token %d was granted after a failover, and before it as well", r.Fence.Token)
		granted[r.Fence.Token] = true
		for _, m := range []*member{b, a} {
			token := m.preempt("s").Token
			f.must(ruleI2, !granted[token], "token %d was granted after a failover, and before it as well", token)
			granted[token] = true
		}
	}
}

// forkedStoreCommit tests a commit after a fork. A reader could mistake a new entry for a lost one
// if both had the same token.
func forkedStoreCommit(f *fixture) {
	a := f.join("a")
	kept := a.acquire("s")
	f.rollBack(func() { a.commit(kept, appendOp("lost")) })
	first := a.writeCtx(f.ctx, newWrite(kept, 1, appendOp("another")))
	f.must(ruleI2, first.Err != nil, "a commit under a lease of before a failover is applied: %+v", first.Head)
	again := a.write(kept, 1, appendOp("another"))
	f.must(ruleI2, errors.Is(again.Err, driver.ErrFenced), "the commit again answers %v; want ErrFenced", again.Err)
}

// forkedStoreOldest tests a promotion when neither the store nor any process remembers the earlier
// promotion.
func forkedStoreOldest(f *fixture) {
	a := f.join("a")
	kept := a.acquire("s")
	oldest, err := f.store.Snapshot(f.ctx)
	f.setup("snapshot", err)
	newest := kept.Token
	for n := range 6 {
		if n > 0 {
			f.setup("restore", oldest(f.ctx))
		}
		f.setup("fork", f.store.Fork(f.ctx))
		for i := range 3 {
			fresh := f.join(fmt.Sprintf("fresh-%d-%d", n, i))
			v, err := fresh.b.Observe(f.ctx, driver.ObserveQuery{})
			f.setup("observe", err)
			r := fresh.claim(driver.Claim{Shard: "s", Seen: ownerIn(v, "s"), Preempt: true})
			f.must(ruleI2, r.Err == nil, "a claim after failover %d from the same state answers %v", n+1, r.Err)
			f.must(ruleA2, r.Fence.Token > newest, "token %d was granted after failover %d from the same state; token %d had been "+
				"granted before", r.Fence.Token, n+1, newest)
			newest = r.Fence.Token
		}
	}
}
