package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// interval is the time during which a process trusted one lease.
type interval struct {
	process     string
	fence       driver.Fence
	from, until Instant
	begin       *Operation
}

// noOverlap finds shards for which two processes trusted leases at the same time (S1), and reports
// the longest overlap of each shard. The trust of a preempted or superseded holder may overlap the
// next lease for up to notice.
func noOverlap(x *index, notice time.Duration) []Finding {
	exits := map[string]Instant{}
	for _, op := range kind(x.all, Exit, OK) {
		if at, ok := exits[op.Ended]; !ok || op.Call < at {
			exits[op.Ended] = op.Call
		}
	}
	forced := takenByForce(x)
	var out []Finding
	for _, shard := range x.shards {
		var worst time.Duration
		var a, b *interval
		count := 0
		overlaps(trusted(x.of[shard], exits), func(former, later *interval) {
			d := time.Duration(min(former.until, later.until) - later.from)
			if forced[later.fence] && d <= notice {
				return
			}
			count++
			if d > worst {
				worst, a, b = d, former, later
			}
		})
		if count == 0 {
			continue
		}
		f := finding("S1", CheckOverlap, shard, []*Operation{a.begin, b.begin},
			"%s trusted %s and %s trusted %s at the same time for %d microseconds, the longest of %d overlaps",
			a.process, lease(a.fence), b.process, lease(b.fence), (worst + time.Microsecond - 1).Microseconds(), count)
		f.Overlap = worst
		out = append(out, f)
	}
	return out
}

// These are one shard's intervals, sorted by start. An interval begins with the first Trust
// operation. The interval ends at the last Until, or earlier if the process distrusted the lease or
// ended.
func trusted(ops []*Operation, exits map[string]Instant) []*interval {
	type key struct {
		process string
		fence   driver.Fence
	}
	by := map[key]*interval{}
	var out []*interval
	for _, op := range kind(ops, Trust, OK) {
		k := key{op.Process, op.Fence}
		v := by[k]
		if v == nil {
			v = &interval{process: op.Process, fence: op.Fence, from: op.Call, begin: op}
			by[k] = v
			out = append(out, v)
		}
		v.until = max(v.until, op.Until)
	}
	for _, op := range kind(ops, Distrust, OK) {
		if v := by[key{op.Process, op.Fence}]; v != nil {
			v.until = min(v.until, op.Call)
		}
	}
	for _, v := range out {
		if at, ok := exits[v.process]; ok {
			v.until = min(v.until, at)
		}
	}
	slices.SortStableFunc(out, func(a, b *interval) int { return cmp.Compare(a.from, b.from) })
	return out
}

// overlaps calls f for pairs of overlapping intervals. For each interval, it considers the earlier
// interval of another process that ends last. If the two intervals overlap, they are passed to f as
// former and later.
func overlaps(by []*interval, f func(former, later *interval)) {
	// top and second are the intervals of two different processes with the latest ends so far.
	var top, second *interval
	for _, v := range by {
		former := top
		if former != nil && former.process == v.process {
			former = second
		}
		if former != nil && former.until > v.from && v.until > v.from {
			f(former, v)
		}
		switch {
		case top == nil || v.until > top.until:
			if top != nil && top.process != v.process {
				second = top
			}
			top = v
		case v.process != top.process && (second == nil || v.until > second.until):
			second = v
		}
	}
}

// takenByForce returns the leases that were taken from a live holder, by preemption or because its
// session was superseded.
func takenByForce(x *index) map[driver.Fence]bool {
	ends, preempted := endings(x), attempts(x, preempts)
	out := map[driver.Fence]bool{}
	for _, op := range kind(x.all, Acquire, OK) {
		out[op.Granted] = out[op.Granted] || preempted[op.attempt()] || ends.superseded(op.Seen.Session, op.Return)
	}
	return out
}
