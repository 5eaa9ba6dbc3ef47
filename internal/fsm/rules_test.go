package fsm

import (
	"flag"
	"fmt"
	"strings"
)

var ignoreFlag = flag.String("ignore", "", "comma-separated rules that are not checked, so that a mutant has to break another")

// A violation is a broken rule. Checks panic with a violation. It has the rule's id (from
// core/driver, docs/internals/conformance.md or the constants below) and one line of explanation.
// The driver of the run (simulation, exploration, fuzzing) adds how to replay the run.
type violation struct {
	rule string
	text string
}

func (v *violation) Error() string { return v.rule + ": " + v.text }

// These rules have no id elsewhere.
const (
	ruleOutstanding = "calls"    // at most three heartbeats and one batch of each other kind
	ruleLivelock    = "livelock" // the machine asks forever to be woken at the same instant
	ruleOutage      = "outage"   // no outage of the store causes an eviction (C5), according to what really happened
	rulePanic       = "panic"    // the machine panicked
)

// ignored is the set of rules that the flag -ignore names.
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
