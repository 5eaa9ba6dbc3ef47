package conformance

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// isolatedPatience limits the duration of a call to a server that is cut off.
const isolatedPatience = time.Second

// briefly makes a call that may wait for unreachable servers, with a time limit.
func (f *fixture) briefly(call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(f.ctx, isolatedPatience)
	defer cancel()
	return call(ctx)
}

// isolatedMaster tests writes to a server that is cut off. A takeover loses data that no other
// server has, so these writes must not succeed.
func isolatedMaster(f *fixture) {
	a, b := f.join("a"), f.join("b")
	kept := a.acquire("s")
	a.commit(kept, appendOp("x"))
	promote, err := f.store.Isolate(f.ctx)
	f.setup("isolate", err)
	for what, call := range map[string]func(context.Context) error{
		"a heartbeat": a.Beat,
		"a commit": func(ctx context.Context) error {
			return a.writeCtx(ctx, newWrite(kept, 2, appendOp("y"))).Err
		},
		"a claim": func(ctx context.Context) error { return b.claimCtx(ctx, driver.Claim{Shard: "t"}).Err },
		"a preemption": func(ctx context.Context) error {
			return b.claimCtx(ctx, driver.Claim{Shard: "s", Seen: driver.Owner{Session: a.ID(), Token: kept.Token}, Preempt: true}).Err
		},
		"an update": func(ctx context.Context) error {
			return a.Update(ctx, driver.MemberState{Weight: 2, Update: 1 << 20})
		},
		"a join": func(ctx context.Context) error {
			_, err := b.b.Join(ctx, f.newcomer(b.b, "late"))
			return err
		},
	} {
		for range 2 {
			err := f.briefly(call)
			f.must(ruleI2, err != nil, "%s succeeds at a server that is cut off from all that can take over from it", what)
		}
	}
	f.setup("promote", promote(f.ctx))
	f.reader = nil // the reader's server is cut off
	fresh := f.join("fresh")
	f.must(ruleI2, f.isMember(a.ID()), "the session of a holder is gone after a takeover of the store")
	r := fresh.claim(driver.Claim{Shard: "s", Seen: f.owner("s"), Preempt: true})
	f.must(ruleA1, r.Err == nil && r.Fence.Token > kept.Token, "a claim after a takeover of the store answers %+v, %v", r.Fence, r.Err)
	f.must(ruleI2, f.head("s").Number == 1, "the head after a takeover is %+v; want one commit", f.head("s"))
}

type glimpse struct {
	number driver.WriteNo
	seq    driver.Seq
	item   string
	listed int
	owned  bool
}

// isolatedReads tests that a reader never sees data that the takeover loses.
func isolatedReads(f *fixture) {
	a := f.join("a")
	kept := a.acquire("s")
	a.commit(kept, appendOp("1"), driver.Op{Kind: driver.OpPut, Key: "k", Value: []byte("1")})
	reader := f.open()
	tail, err := reader.TailLog(f.ctx, "", 10)
	f.setup("tail", err)
	look := func(r driver.Backend, cursor driver.Cursor) (g glimpse) {
		// A failed call returns no data to the reader.
		_ = f.briefly(func(ctx context.Context) error {
			page, err := r.ReadLog(ctx, "s", 0, 10)
			if err == nil {
				g.number, g.seq = page.Head.Number, driver.Seq(len(page.Entries))
			}
			return err
		})
		_ = f.briefly(func(ctx context.Context) error {
			it, err := r.Get(ctx, "s", "k")
			if err == nil && it != nil {
				g.item = string(it.Value)
			}
			return err
		})
		_ = f.briefly(func(ctx context.Context) error {
			all, err := r.List(ctx, "s", "", 0, 0)
			g.listed = len(all)
			return err
		})
		_ = f.briefly(func(ctx context.Context) error {
			v, err := r.Observe(ctx, driver.ObserveQuery{})
			g.owned = err == nil && ownerIn(v, "t").Session != ""
			return err
		})
		if cursor != "" {
			_ = f.briefly(func(ctx context.Context) error {
				page, err := r.TailLog(ctx, cursor, 10)
				if err == nil {
					for _, e := range page.Entries {
						g.seq = max(g.seq, e.Seq)
					}
				}
				return err
			})
		}
		return g
	}
	promote, err := f.store.Isolate(f.ctx)
	f.setup("isolate", err)
	_ = f.briefly(func(ctx context.Context) error { // readers must not see the effect of this call
		return a.writeCtx(ctx, newWrite(kept, 2, appendOp("2"), driver.Op{Kind: driver.OpPut, Key: "k", Value: []byte("2")},
			driver.Op{Kind: driver.OpPut, Key: "l", Value: []byte("2")})).Err
	})
	_ = f.briefly(func(ctx context.Context) error { return a.claimCtx(ctx, driver.Claim{Shard: "t"}).Err })
	was := look(reader, tail.Cursor)
	f.setup("promote", promote(f.ctx))
	now := look(f.open(), "")
	f.must(ruleI2, was.number <= now.number && was.seq <= now.seq && was.item <= now.item && was.listed <= now.listed &&
		(!was.owned || now.owned),
		"a reader was answered %+v by a server that was cut off, and the one that took over has %+v", was, now)
}
