package sharding

import (
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/planning"
)

// NewSimulated returns a planner of shards without a log, for the simulation of this
// repository. Applications run a Manager.
func NewSimulated(a Assigner, shards []string, penalty time.Duration) (planning.Planner, error) {
	if _, err := Expand(shards...); err != nil {
		return nil, err
	}
	s := &simulated{table: &assignments{}}
	s.new = func() *planner { return &planner{Assigner: a, Specs: shards, Penalty: penalty} }
	s.Restart()
	return s, nil
}

type simulated struct {
	new     func() *planner
	planner *planner
	table   *assignments
	heirs   []int32 // slots, by shard
}

func (s *simulated) Restart() { s.planner = s.new() }

func (s *simulated) Next(now time.Duration, v *core.View) (moved []int32, planned, again bool) {
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

func (s *simulated) Owner(shard int32) core.SessionID { return s.table.session(int(shard)) }

func (s *simulated) Heir(shard int32) core.SessionID {
	if h := s.heirs[shard]; h != None {
		return s.table.members[h].ID
	}
	return ""
}
