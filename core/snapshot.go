package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A View shows up to maxMoves requested moves and up to maxMoves other moves. The limits are
// separate, so that a rebalance does not hide the moves after a crash.
const maxMoves = 64

// A snapshots value makes Views on demand, so changes cost nothing while no caller needs a View.
// Elector.mu guards all fields except last.
type snapshots struct {
	gen     uint64 // generation of the state
	changed signal
	moved   uint64
	moves   map[bool]*ring // the key is true for requested moves

	lastMu sync.Mutex // locked before Elector.mu
	last   *View
}

func (s *snapshots) bump() {
	s.gen++
	s.changed.wake()
}

// ring contains the newest moves, up to maxMoves.
type ring struct {
	moves []numberedMove
	next  int
}

type numberedMove struct {
	Event
	n uint64 // the move's number, counted from the first move
}

func (s *snapshots) move(f Fence, k EventKind, err error, asked bool) {
	r := s.moves[asked]
	s.moved++
	m := numberedMove{Event{At: time.Now(), Fence: f, Kind: k, Err: err}, s.moved}
	if len(r.moves) < maxMoves {
		r.moves = append(r.moves, m)
	} else {
		r.moves[r.next] = m
		r.next = (r.next + 1) % maxMoves
	}
	s.bump()
}

func (s *snapshots) list() []Event {
	all := slices.Concat(s.moves[true].moves, s.moves[false].moves)
	slices.SortFunc(all, func(a, b numberedMove) int { return cmp.Compare(a.n, b.n) })
	list := make([]Event, len(all))
	for i := range all {
		list[i] = all[i].Event
	}
	return list
}

// View returns the newest snapshot. View does no I/O.
func (e *Elector) View() *View {
	e.snap.lastMu.Lock()
	defer e.snap.lastMu.Unlock()
	e.mu.Lock()
	silent := e.m.AppendSilent(nil, e.clk.now())
	if e.damages.forget(time.Now()) {
		e.snap.bump()
	}
	end := e.certificateEnd()
	if v := e.snap.last; v != nil && v.gen == e.snap.gen && slices.Equal(v.Silent, silent) && v.CertificateEnd.Equal(end) {
		e.mu.Unlock()
		return v
	}
	v, states := e.copyState()
	v.Silent, v.CertificateEnd = silent, end
	aside := e.aside
	e.mu.Unlock()

	slices.SortFunc(v.Members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Session, b.Session))
	})
	nodes := make(map[SessionID]string, len(v.Members))
	for i := range v.Members {
		nodes[v.Members[i].Session] = v.Members[i].Node
	}
	v.Shards = make([]Ownership, len(states))
	for i, s := range states {
		v.Shards[i] = Ownership{Shard: string(s.Shard), Session: s.Owner.Session, Token: s.Owner.Token, Node: nodes[s.Owner.Session],
			Aside: aside[string(s.Shard)].Why, AsideUntil: aside[string(s.Shard)].Until}
	}
	slices.SortFunc(v.Shards, func(a, b Ownership) int { return cmp.Compare(a.Shard, b.Shard) })
	slices.SortFunc(v.Leases, func(a, b LeaseInfo) int { return cmp.Compare(a.Fence.Shard, b.Fence.Shard) })
	e.snap.last = v
	return v
}

// copyState copies the state that a View shows. The caller holds e.mu.
func (e *Elector) copyState() (*View, []driver.ShardState) {
	v := &View{
		Node: e.o.Node, Session: e.m.Session(), Trusted: e.m.Trusted(e.clk.now()), Err: e.halted,
		Ineligible: e.m.Ineligible(), Trouble: e.trouble.text,
		Leaving: !e.leaving.IsZero() || e.phase >= stopping, Stopped: e.phase >= stopping,
		Members: e.m.AppendMembers(nil), Contended: len(e.contended), gen: e.snap.gen,
		Rules: e.rules.rules, Damaged: e.damages.list(), DamagedTotal: e.damages.total,
	}
	v.Leases = make([]LeaseInfo, 0, len(e.runs))
	for _, r := range e.runs {
		v.Leases = append(v.Leases, LeaseInfo{Fence: r.lease.fence, State: r.state, Since: r.since})
	}
	v.Moves = e.snap.list()
	return v, e.m.AppendShards(nil)
}

// WaitView waits for a snapshot that is newer than the given View, and returns it. If the given
// View is nil, WaitView returns any snapshot. WaitView may skip snapshots in between. If Run has
// ended and there will be no newer snapshot, the error matches ErrStopped. Any other error comes
// from ctx.
func (e *Elector) WaitView(ctx context.Context, after *View) (*View, error) {
	for {
		e.mu.Lock()
		newer := after == nil || e.snap.gen > after.gen
		stopped := e.phase == stopped
		w := e.snap.changed.wait()
		e.mu.Unlock()
		switch {
		case newer:
			return e.View(), nil
		case stopped:
			return nil, fmt.Errorf("tenure: %w", ErrStopped)
		}
		select {
		case <-w:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
