package conformance

import (
	"slices"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
)

// recorder returns a Recorder for judge. It collects the members' calls on their shards, and the
// answers.
func (f *fixture) recorder() *history.Recorder {
	f.t.Helper()
	r, err := history.NewRecorder(f.c.Name())
	f.setup("record", err)
	return r
}

// The result is a copy of the member whose calls r records.
func (m *member) recorded(r *history.Recorder) *member {
	c := *m
	c.Session = history.WrapSession(m.Session, r)
	return &c
}

func accepted(r *history.Recorder, shard driver.ShardID) int {
	n := 0
	for _, op := range r.History().Operations {
		if op.Kind == history.Commit && op.Outcome == history.OK && op.Shard == shard {
			n++
		}
	}
	return n
}

// judge reads the complete, untrimmed logs of shards. It reports at most five answers per rule that
// no order of the operations could explain. No call may be in flight.
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
		// The check treats each shard separately. A store may mistake a claim for a repetition of
		// another claim that saw the same token. The answer then has a token that was granted
		// before the call.
		of := slices.DeleteFunc(slices.Clone(all), func(op history.Operation) bool { return op.Shard != shard })
		said := map[rule]int{}
		for _, found := range history.Check(&history.History{Operations: of}, nil) {
			rule := contractRule(found.Rule)
			if said[rule]++; said[rule] <= 5 {
				f.broken(rule, "shard %q: %s", shard, found.Message)
			}
		}
	}
}

// contractRule returns the contract rule that a finding breaks. Package history also reports rules
// of the state machine.
func contractRule(found string) rule {
	switch found {
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
	return rule(found)
}
