package sharding

import (
	"time"

	"github.com/tenure-go/tenure/core"
)

// NewSimulated returns a planner of shards without a log, for the simulation.
func NewSimulated(a Assigner, shards []string, penalty time.Duration) (*Simulated, error) {
	if _, err := Expand(shards...); err != nil {
		return nil, err
	}
	s := &Simulated{table: &assignments{}}
	s.new = func() *planner { return &planner{Assigner: a, Specs: shards, Penalty: penalty} }
	s.Restart()
	return s, nil
}

// Simulated plans as an assigner does, and has the assignments that its plans result in.
type Simulated struct {
	new     func() *planner
	planner *planner
	table   *assignments
	heirs   []int32 // slots, by shard
}

// Restart is a new assigner, which knows the assignments only.
func (s *Simulated) Restart() { s.planner = s.new() }

// Next plans from a view, at now after any fixed point. It returns the shards that it moves,
// as indices in the order of their names, whether it planned anything, and whether something
// may be left to do although the view does not change.
func (s *Simulated) Next(now time.Duration, v *core.View) (moved []int32, planned, again bool) {
	out, err := s.planner.next(now, s.table, v, nil)
	if err != nil {
		panic(err) // the shard set is valid: it was expanded before
	}
	if out.change == nil {
		return nil, false, out.again
	}
	if err := s.table.apply(out.change); err != nil {
		panic(err) // made for this table
	}
	s.heirs = heirs(s.table.members, s.table.owner)
	for _, m := range out.Moves {
		moved = append(moved, m.Shard)
	}
	return moved, true, out.again
}

// Owner is the session that a shard is assigned to, empty if there is none.
func (s *Simulated) Owner(shard int32) core.SessionID { return s.table.session(int(shard)) }

// Heir is the session that takes a shard over when its owner dies, empty if there is none.
func (s *Simulated) Heir(shard int32) core.SessionID {
	if h := s.heirs[shard]; h != None {
		return s.table.members[h].ID
	}
	return ""
}
