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

// LostError says what a store no longer has after a failover or a restore: of the
// lease Fence it had acknowledged the commits up to Acknowledged, and the shard's last
// is Found. It matches ErrStoreLost.
type LostError struct {
	Fence               Fence
	Acknowledged, Found driver.Head
}

func (e *LostError) Error() string {
	return fmt.Sprintf("tenure: shard %q: after a failover or restore the store has the commits up to %d "+
		"and had acknowledged those up to %d, under token %d: compare what the application did with what the log has",
		e.Fence.Shard, e.Found.Number, e.Acknowledged.Number, e.Fence.Token)
}

// Is makes a LostError match ErrStoreLost.
func (e *LostError) Is(target error) bool { return target == ErrStoreLost }

// acknowledged is the last commit that the store acknowledged to this process, by
// shard, with the lease that made it. Elector.mu guards it.
type acknowledged map[ShardID]lastCommit

type lastCommit struct {
	fence Fence
	head  driver.Head
}

// keep remembers the head as the lease of a run left it.
func (a acknowledged) keep(r *run) {
	c := &r.lease.commits
	c.mu.Lock()
	m := lastCommit{r.lease.fence, c.head}
	c.mu.Unlock()
	if m.head.Number > 0 && m.fence.Token >= a[m.fence.Shard].fence.Token {
		a[m.fence.Shard] = m
	}
}

// failedOver looks at a view before the machine does. A full one whose floor was
// raised says that the store may have forgotten grants and commits (I2): what this
// process had acknowledged is compared with what the store has. A shard that the
// store forgot altogether counts as free with the floor as its token, which ends
// whatever was known of it.
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
	e.note.session(SessionEvent{Kind: SessionFailedOver, Session: e.m.Session()}, nil)
	for _, r := range e.runs {
		e.acked.keep(r)
	}
	acked, floor := slices.Collect(maps.Values(e.acked)), v.Floor
	e.calls.Go(func() { e.compare(acked, floor) })
}

// compare reports what the store lost of what was acknowledged before the floor was
// raised. It asks for each shard until it is answered, or Run ends.
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
