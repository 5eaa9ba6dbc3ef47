package fsm

import (
	"flag"
	"fmt"
	"strings"
)

var ignoreFlag = flag.String("ignore", "", "comma-separated rules that are not checked, so that a mutant has to break another")

// A violation is a broken rule: its id in core/driver or docs/internals/conformance.md, or of the
// machine's own invariants, and one line that explains it. The checks panic with it, and
// the driver of the run (simulation, exploration, fuzzing) adds how to replay.
type violation struct {
	rule string
	text string
}

func (v *violation) Error() string { return v.rule + ": " + v.text }

// Rules that have no number elsewhere.
const (
	ruleOutstanding = "calls"    // at most three heartbeats and one batch of each other kind
	ruleLivelock    = "livelock" // the machine asks to be woken for ever at one instant
	ruleOutage      = "outage"   // an outage of the store evicts nobody (C5), judged by what happened
	rulePanic       = "panic"    // the machine panicked
)

// ignored is the set of rules named by -ignore.
type ignored []string

func newIgnored() ignored {
	if *ignoreFlag == "" {
		return nil
	}
	return strings.Split(*ignoreFlag, ",")
}

// fail reports a broken rule, unless it is ignored.
func (g ignored) fail(rule, format string, args ...any) {
	for _, r := range g {
		if r == rule {
			return
		}
	}
	panic(&violation{rule: rule, text: fmt.Sprintf(format, args...)})
}
