package conformance

import (
	"slices"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
)

// recorder returns a recorder of the members' calls on their shards and of the answers, for
// judge.
func (f *fixture) recorder() *history.Recorder {
	f.t.Helper()
	r, err := history.NewRecorder(f.c.Name())
	f.setup("record", err)
	return r
}

// recorded returns the same member with its calls recorded.
func (m *member) recorded(r *history.Recorder) *member {
	c := *m
	c.Session = history.WrapSession(m.Session, r)
	return &c
}

// accepted returns the number of acknowledged commits to a shard.
func accepted(r *history.Recorder, shard driver.ShardID) int {
	n := 0
	for _, op := range r.History().Operations {
		if op.Kind == history.Commit && op.Outcome == history.OK && op.Shard == shard {
			n++
		}
	}
	return n
}

// judge reads the whole logs of shards, which must be untrimmed. It fails the case for answers that
// no order of the store could explain, at most five times for each rule. No call may be in flight.
func (f *fixture) judge(r *history.Recorder, shards ...driver.ShardID) {
	f.t.Helper()
	b := history.Wrap(f.read(), r)
	for _, shard := range shards {
		entries := len(f.logOf(b, shard, 0))
		if head := f.head(shard); head.Seq != driver.Seq(entries) {
			f.broken(ruleL1, "shard %q: %d entries can be read, and the head is %+v", shard, entries, head)
		}
	}
	all := r.History().Operations
	for _, shard := range shards {
		// Each is judged alone, because a store may take a claim for a repetition of another
		// claim that saw the same token. Its answer then has a token from before its call.
		of := slices.DeleteFunc(slices.Clone(all), func(op history.Operation) bool { return op.Shard != shard })
		said := map[Rule]int{}
		for _, found := range history.Check(&history.History{Operations: of}, nil) {
			rule := contractRule(found.Rule)
			if said[rule]++; said[rule] <= 5 {
				f.broken(rule, "shard %q: %s", shard, found.Message)
			}
		}
	}
}

// contractRule returns the rule of the contract that a finding breaks. Package history also names
// rules of the state machine.
func contractRule(rule string) Rule {
	switch rule {
	case "S1":
		return ruleA1
	case "S2":
		return ruleA2
	case "S3", "S15":
		return ruleF1
	case "S16":
		return ruleE1
	case "L2", "T1", "T2", "T3", "T4":
		return ruleL1
	}
	return Rule(rule)
}
