package history

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Options configures Check. The zero value is valid.
type Options struct {
	// Notice is how long a holder may still trust a preempted lease, or a superseded session's
	// lease, after another process trusts the next lease. Notice is the library's resync interval
	// (rule C11). 0 allows no overlap.
	Notice time.Duration
	// MinGrants and MinCommits are the minimum numbers of accepted operations. A smaller history
	// proves nothing, so Check returns a finding for it. 0 means no limit.
	MinGrants, MinCommits int
}

// Finding describes operations that are impossible in a correct system.
type Finding struct {
	Rule       string         // rule of the design, such as "S1"
	Check      string         // the validator, or the model of package linearizable
	Shard      driver.ShardID // empty if the finding is not about a single shard
	Message    string         // in one line
	Operations []Operation    // the operations in the message
	Overlap    time.Duration  // only for no-overlap-of-trust
}

// These are the names of the checks.
const (
	CheckTraffic    = "enough-traffic"
	CheckTokens     = "tokens-increase"
	CheckOverlap    = "no-overlap-of-trust"
	CheckPrefix     = "log-is-a-prefix"
	CheckTokenOrder = "accepted-writes-in-token-order"
	CheckSuperseded = "nothing-accepted-after-a-higher-grant"
	CheckNumbers    = "number-sequence"
	CheckTakeover   = "takeover-after-end"
	CheckLife       = "one-life-of-a-session"
	CheckHeads      = "writes-agree-with-the-heads-of-grants"
	CheckFenced     = "fenced-for-a-reason"
)

// String returns the rule, the check, the shard and the message. A line with each operation's times
// follows.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: ", f.Rule, f.Check)
	if f.Shard != "" {
		fmt.Fprintf(&b, "shard %q: ", f.Shard)
	}
	b.WriteString(f.Message)
	for _, op := range f.Operations {
		fmt.Fprintf(&b, "\n\t[%d, %d] %v", op.Call, op.Return, op)
	}
	return b.String()
}

// Check runs every validator on a history, and returns the findings. For a correct history, Check
// returns no findings. A nil o means the zero Options. Check is safe for concurrent use, and takes
// O(n log n) time.
func Check(h *History, o *Options) []Finding {
	if o == nil {
		o = &Options{}
	}
	x := newIndex(h)
	out := traffic(h, o)
	out = append(out, tokensIncrease(x)...)
	out = append(out, noOverlap(x, o.Notice)...)
	out = append(out, logIsPrefix(x)...)
	out = append(out, tokenOrder(x)...)
	out = append(out, nothingSuperseded(x)...)
	out = append(out, numberSequence(x)...)
	out = append(out, takeoverAfterEnd(x)...)
	out = append(out, oneLife(x)...)
	out = append(out, headsOfGrants(x)...)
	return append(out, fencedForAReason(x)...)
}

// traffic returns a finding if a history is too small to prove anything.
func traffic(h *History, o *Options) []Finding {
	var out []Finding
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"grants", h.Count(Acquire, OK) + h.Count(Transfer, OK), o.MinGrants},
		{"commits", h.Count(Commit, OK), o.MinCommits},
	} {
		if c.got < c.want {
			out = append(out, Finding{Rule: "traffic", Check: CheckTraffic,
				Message: fmt.Sprintf("%d %s are in the history, and fewer than %d prove nothing: run longer, or with "+
					"fewer faults", c.got, c.what, c.want)})
		}
	}
	return out
}

func finding(rule, check string, shard driver.ShardID, ops []*Operation, format string, args ...any) Finding {
	f := Finding{Rule: rule, Check: check, Shard: shard, Message: fmt.Sprintf(format, args...)}
	for _, op := range ops {
		f.Operations = append(f.Operations, *op)
	}
	return f
}

// byReturn compares operations by return time.
func byReturn(a, b *Operation) int { return cmp.Compare(a.Return, b.Return) }
