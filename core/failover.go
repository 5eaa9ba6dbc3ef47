package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// LostError reports that a store lost acknowledged commits in a failover or a restore. Acknowledged
// is the last head that the store acknowledged under the lease that Fence identifies. Found is the
// shard's current head. LostError matches ErrStoreLost.
type LostError struct {
	Fence               Fence
	Acknowledged, Found driver.Head
}

func (e *LostError) Error() string {
	return fmt.Sprintf("tenure: shard %q: after a failover or restore the store has the commits up to %d "+
		"and had acknowledged those up to %d, under token %d: compare what the application did with what the log has",
		e.Fence.Shard, e.Found.Number, e.Acknowledged.Number, e.Fence.Token)
}

// Is reports whether target is ErrStoreLost.
func (e *LostError) Is(target error) bool { return target == ErrStoreLost }

// acknowledged contains, for each shard, the last commit that the store acknowledged to this
// process, and the commit's lease. Elector.mu guards it.
type acknowledged map[ShardID]lastCommit

type lastCommit struct {
	fence Fence
	head  driver.Head
}

func (a acknowledged) keep(r *run) {
	c := &r.lease.commits
	c.mu.Lock()
	m := lastCommit{r.lease.fence, c.head}
	c.mu.Unlock()
	if m.head.Number > 0 && m.fence.Token >= a[m.fence.Shard].fence.Token {
		a[m.fence.Shard] = m
	}
}

// failedOver examines a view before the machine sees it. If a full view has a raised floor, the
// store may have lost grants and commits (I2). In that case, the commits acknowledged to this
// process are compared with those in the store. If the store has lost a shard completely, the shard
// counts as free, with the floor as its token, and all its earlier leases end.
func (e *Elector) failedOver(v *driver.View) {
	if !v.Reset {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	raised := e.floorKnown && v.Floor > e.floor
	e.floor, e.floorKnown = max(e.floor, v.Floor), true
	if v.Floor == 0 {
		return
	}
	listed := make(map[ShardID]bool, len(v.Shards))
	for _, s := range v.Shards {
		listed[s.Shard] = true
	}
	for _, s := range e.m.AppendShards(nil) {
		if t := s.Owner.Token; !listed[s.Shard] && t != 0 && t <= v.Floor {
			v.Shards = append(v.Shards, driver.ShardState{Shard: s.Shard, Owner: driver.Owner{Token: v.Floor}})
		}
	}
	if !raised || e.phase != running {
		return
	}
	e.note.session(Event{Kind: SessionFailedOver, Session: e.m.Session()}, nil)
	for _, r := range e.runs {
		e.acked.keep(r)
	}
	acked, floor := slices.Collect(maps.Values(e.acked)), v.Floor
	e.calls.Go(func() { e.compare(acked, floor) })
}

// compare reports commits that were acknowledged before the floor was raised and are now lost. For
// each shard, compare repeats the read until it gets an answer or Run ends.
func (e *Elector) compare(acked []lastCommit, floor Token) {
	for _, m := range acked {
		for m.fence.Token <= floor {
			ctx, cancel := context.WithTimeout(e.callCtx, e.o.CallTimeout)
			page, err := e.b.ReadLog(ctx, m.fence.Shard, 0, 0)
			cancel()
			if err == nil {
				if h := page.Head; h.Number < m.head.Number || h.Number == m.head.Number && h.Nonce != m.head.Nonce {
					e.note.storeLost(&LostError{Fence: m.fence, Acknowledged: m.head, Found: h})
				}
				break
			}
			e.storeChanged(err)
			if e.damaged(err); errors.Is(err, driver.ErrDamaged) {
				break
			}
			e.mu.Lock()
			over := e.phase != running
			e.mu.Unlock()
			if over {
				return
			}
			t := time.NewTimer(e.dice.jittered(max(e.o.TTL/12, time.Millisecond)))
			select {
			case <-t.C:
			case <-e.callCtx.Done():
			}
			t.Stop()
		}
	}
}
