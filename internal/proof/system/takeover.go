package system

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
)

// takeover is a change of a shard's owner.
type takeover struct {
	shard    driver.ShardID
	from, to string // processes
	forced   bool   // the former owner had a fault; otherwise, the fields below are unset
	cause    cause
	at, end  history.Instant // instants of the fault and of the new grant
	took     time.Duration   // time from the fault, or from the return of the store
	alone    bool            // no other fault during it, and a live candidate
	delays   []delay
	turns    time.Duration // turns that other candidates with faults had before the successor
}

// cause is the reason why the former owner lost the shard.
type cause string

const (
	causeCrash  cause = "crash"  // its process was killed
	causeStop   cause = "stop"   // its process was stopped
	causeOutage cause = "outage" // the store was also away; the time begins at its return
)

// reason explains why a takeover took longer than the TTL.
type reason string

const (
	reasonAway   reason = "the store was away"
	reasonStruck reason = "another member was struck as well"
	reasonStill  reason = "this machine stood still"
	reasonSlow   reason = "the store answered late"
	reasonNone   reason = "no reason"
)

var reasons = []reason{reasonAway, reasonStruck, reasonStill, reasonSlow}

// delay is an explained part of a takeover.
type delay struct {
	why      reason
	from, to history.Instant
}

// aloneLimit and longLimit limit the unexplained time of a takeover (V1). The ttl argument is the
// former owner's TTL. A twentieth of the TTL and 50 ms allow for the proof that the store serves,
// for the eviction and for the claim. On a polled store, a member may see both the last heartbeat
// and the eviction up to a poll period late. After overlapping faults, several candidates take
// turns, and the limit allows half a TTL for these turns.
func aloneLimit(ttl, poll time.Duration) time.Duration {
	return ttl*105/100 + 50*time.Millisecond + 2*poll
}
func longLimit(ttl time.Duration) time.Duration { return ttl * 3 / 2 }

// unexplained returns the part of a takeover's time that has no reason.
func (t *takeover) unexplained() time.Duration {
	return time.Duration(t.end-t.at) - t.explained(reasons...) - t.turns
}

// explained returns the time during which at least one of the reasons existed.
func (t *takeover) explained(why ...reason) time.Duration {
	return lasted(t.delays, t.at, t.end, why...)
}

// lasted returns the part of a period in which a delay with one of the reasons lasted.
func lasted(delays []delay, from, to history.Instant, why ...reason) (all time.Duration) {
	sorted := slices.SortedFunc(slices.Values(delays), func(a, b delay) int { return cmp.Compare(a.from, b.from) })
	for _, d := range sorted {
		if begin, end := max(from, d.from), min(to, d.to); end > begin && slices.Contains(why, d.why) {
			all += time.Duration(end - begin)
			from = end
		}
	}
	return all
}

// reason returns the reason for the largest explained part of a takeover. If too much of the
// takeover is unexplained, reason returns reasonNone.
func (t *takeover) reason(ttl time.Duration) reason {
	if t.unexplained() > longLimit(ttl) {
		return reasonNone
	}
	most, why := time.Duration(-1), reasonNone
	for i, r := range reasons {
		more := t.explained(reasons[:i+1]...) - t.explained(reasons[:i]...)
		if r == reasonStruck {
			more += t.turns
		}
		if more > most {
			most, why = more, r
		}
	}
	return why
}

func (t *takeover) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s took over %s from %s %v after its %s", t.to, t.shard, t.from, time.Duration(t.end-t.at), t.cause)
	for i, r := range reasons {
		if more := t.explained(reasons[:i+1]...) - t.explained(reasons[:i]...); more > 0 {
			fmt.Fprintf(&b, ", %v since %s", more, r)
		}
	}
	fmt.Fprintf(&b, ", %v for the turns of others; %v have no reason", t.turns, t.unexplained())
	return b.String()
}

// inTime finds takeovers that took too long without a reason (V1). A reason explains only the time
// during which it lasted.
func (e *evidence) inTime() []history.Finding {
	var out []history.Finding
	for _, t := range e.takeovers() {
		limit := longLimit(e.config.TTL)
		if t.alone {
			limit = aloneLimit(e.config.TTL, e.poll)
		}
		if t.forced && t.unexplained() > limit {
			out = append(out, newFinding("V1", checkInTime, t.shard, "%v: want at most %v; %v", &t, limit, e.waits(&t)))
		}
	}
	return out
}

// waits describes how long each process did not run, and how long it waited for the store.
func (e *evidence) waits(t *takeover) string {
	var b strings.Builder
	b.WriteString("delayed")
	lives := e.lives()
	for _, process := range slices.Sorted(maps.Keys(e.journals)) {
		began := since(lives[process], t.end)
		if began == 0 {
			continue // it joined later
		}
		own := e.delays(process)
		fmt.Fprintf(&b, "; %s since %v: %v still, %v slow", process, time.Duration(began-t.at),
			lasted(own, t.at, t.end, reasonStill), lasted(own, t.at, t.end, reasonSlow))
	}
	return b.String()
}

// granted is a lease, with the latest time at which its owner can have learned of it.
type granted struct {
	process   string
	fence     driver.Fence
	call, end history.Instant
}

// grants returns the leases of each shard in the order of their tokens. If the answer to a claim
// was lost, but the process trusted the lease, the result includes the lease.
func (e *evidence) grants() map[driver.ShardID][]granted {
	first := map[driver.Fence]granted{}
	for i := range e.history.Operations {
		op := &e.history.Operations[i]
		g := granted{process: op.Process, fence: op.Granted, call: op.Call, end: op.Return}
		switch {
		case op.Kind == history.Trust:
			g.fence, g.end = op.Fence, op.Call
		case op.Outcome != history.OK || op.Granted.Token == 0:
			continue
		}
		if old, known := first[g.fence]; !known || g.end < old.end {
			if known && op.Kind == history.Transfer { // a repeated transfer
				g.process = old.process
			}
			first[g.fence] = g
		}
	}
	out := map[driver.ShardID][]granted{}
	for f, g := range first {
		out[f.Shard] = append(out[f.Shard], g)
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b granted) int { return cmp.Compare(a.fence.Token, b.fence.Token) })
	}
	return out
}

// takeovers returns every change of owner between processes. If the former owner lost the shard
// through a fault, the result contains the time since the fault.
func (e *evidence) takeovers() []takeover {
	process := map[driver.SessionID]string{}
	for i := range e.history.Operations {
		if op := &e.history.Operations[i]; op.Kind == history.Join {
			process[op.Session] = op.Process
		}
	}
	all := e.grants()
	var out []takeover
	for _, shard := range slices.Sorted(maps.Keys(all)) {
		for i, now := range all[shard][1:] {
			former := all[shard][i]
			t := takeover{shard: shard, from: process[former.fence.Session], to: process[now.fence.Session]}
			if t.from == t.to {
				continue
			}
			for _, k := range e.injections {
				if k.process == t.from && k.step.Fault.takesOver() && k.at > former.end && k.at < now.end &&
					(k.over == 0 || k.over > now.call) {
					e.force(&t, k, former.fence.Session, now.end)
				}
			}
			out = append(out, t)
		}
	}
	return out
}

// force records that fault k caused takeover t, and the other delays of t.
func (e *evidence) force(t *takeover, k *injection, former driver.SessionID, end history.Instant) {
	*t = takeover{shard: t.shard, from: t.from, to: t.to, forced: true, cause: causeStop, alone: true,
		at: k.at, end: end, took: time.Duration(end - k.at)}
	if k.step.Fault.kills() {
		t.cause = causeCrash
	}
	ttl := history.Instant(e.config.TTL)
	for _, o := range e.injections {
		over := o.over
		if over == 0 && !o.step.Fault.stops() {
			over = o.at + ttl // until then, the other members wait for this member
		}
		if o == k || o.at > end || over != 0 && over < k.at-ttl {
			continue
		}
		t.alone = false
		switch {
		case o.step.Fault.ofStore():
			t.cause = causeOutage
			if o.over > k.at {
				t.took = min(t.took, max(0, time.Duration(end-o.over)))
			}
			t.delays = append(t.delays, delay{reasonAway, k.at, o.over}) // members measure the silence again from zero: C5
		case o.process != t.to:
			t.turns = min(t.turns+3*e.rank, 9*e.rank) // for the eviction and the claim, each with jitter: C9
		case o.step.Fault.stops():
			t.delays = append(t.delays, delay{reasonStruck, o.at, o.over})
		}
	}
	t.delays = append(t.delays, e.away(t, former)...)
	t.delays = append(t.delays, e.lost(t, former)...)
	t.delays = append(t.delays, e.told(t, former)...)
	t.delays = append(t.delays, e.waited(t, former)...)
}

// These are the periods of a takeover in which the store accepted no member's writes. Until the
// store accepts writes again, no member can prove another member's silence. Afterwards, members
// restart their measurement of the silence (C5), unless the former owner had already been evicted.
func (e *evidence) away(t *takeover, former driver.SessionID) []delay {
	evicted := never
	for _, op := range e.evicted() {
		if op.Target == former {
			evicted = op.Return
		}
	}
	var out []delay
	for _, d := range e.absences() {
		if d.to <= t.at || d.from >= t.end {
			continue
		}
		if d.from < evicted {
			d.from = t.at
		}
		out = append(out, d)
	}
	return out
}

// absences returns the periods longer than half a TTL in which members sent writes and heartbeats,
// but got no answer. As in C5, a period begins when the newest answered call was sent, and lasts
// until the next answer. A period in which no member sent anything does not count.
func (e *evidence) absences() []delay {
	ttl := history.Instant(e.config.TTL)
	var out []delay
	begin, last, sent := never, history.Instant(0), history.Instant(0)
	for _, c := range e.calls() {
		if c.from > last+ttl/3 { // no member called the store in between
			begin = never
		}
		begin, last = min(begin, c.from), c.to
		if !c.answered {
			continue
		}
		if from := max(begin, sent); c.to-from > ttl/2 {
			out = append(out, delay{reasonAway, from, c.to})
		}
		begin, sent = never, max(sent, c.from)
	}
	return out
}

// called is a write or a heartbeat that has ended and was not lost on the wire.
type called struct {
	from, to history.Instant
	answered bool // the store accepted the call, or refused it because of its records
}

// calls returns the calls of all members, sorted by end.
func (e *evidence) calls() []called {
	var out []called
	for _, notes := range e.journals {
		for _, n := range notes {
			if n.Is == noteBeat {
				out = append(out, called{n.At - n.Took, n.At, n.Why == ""})
			}
		}
	}
	judged := []string{history.ReasonHeld, history.ReasonFenced, history.ReasonNumber, history.ReasonConflict}
	for i := range e.history.Operations {
		op := &e.history.Operations[i]
		switch op.Kind {
		case history.Join, history.Acquire, history.Transfer, history.Release, history.Commit, history.Evict:
		default: // a server that accepts no writes may answer a read
			continue
		}
		if op.Return != 0 && !strings.Contains(op.Reason, errLost.Error()) {
			out = append(out, called{op.Call, op.Return,
				op.Outcome == history.OK || op.Outcome == history.Refused && slices.Contains(judged, op.Reason)})
		}
	}
	slices.SortFunc(out, func(a, b called) int {
		return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.from, b.from))
	})
	return out
}

// waited returns the delays of the candidates. A member that was present throughout, without a
// fault, measures the whole silence. If there are such members, waited returns only the delays of
// the least delayed member. Without such members, the successor measures the silence from its
// start, or from the end of a stop after which it starts again from zero (C5).
func (e *evidence) waited(t *takeover, former driver.SessionID) []delay {
	var least []delay
	any := false
	lives := e.lives()
	for process, all := range lives {
		there := slices.ContainsFunc(all, func(l life) bool { return l.begin <= t.at && l.end > t.end })
		if process == t.from || !there || e.struck(process, t.at, t.end) {
			continue
		}
		own := e.delays(process)
		if !any || lasted(own, t.at, t.end, reasons...) < lasted(least, t.at, t.end, reasons...) {
			least, any = own, true
		}
	}
	own := e.delays(t.to)
	if any {
		// The successor's turn comes after the turns of the members that evicted (C9).
		path := own
		for _, op := range e.evicted() {
			if op.Target == former && op.Process != t.to {
				path = slices.Concat(own, e.delays(op.Process))
			}
		}
		more := lasted(path, t.at, t.end, reasons...) - lasted(least, t.at, t.end, reasons...)
		t.turns += min(max(0, more), 9*e.rank)
		return least
	}
	begin := since(lives[t.to], t.end)
	for _, k := range e.injections {
		if k.process == t.to && k.step.Fault.stops() && k.over-k.at > history.Instant(e.config.TTL)/2 && k.at < t.end {
			begin = max(begin, k.over)
		}
	}
	if begin > t.at { // the other members had earlier faults, some too early for force
		t.alone = false
	}
	return append(own, delay{reasonStruck, t.at, begin})
}

// life is a session of a process, from the answer to its join until its end. A session without an
// end in the history never ends.
type life struct {
	session    driver.SessionID
	begin, end history.Instant
}

const never = history.Instant(1<<63 - 1)

// lives returns the sessions of each process, in order.
func (e *evidence) lives() map[string][]life {
	ended := map[driver.SessionID]history.Instant{}
	for _, op := range e.evicted() {
		ended[op.Target] = op.Call
	}
	out := map[string][]life{}
	for i := range e.history.Operations {
		op := &e.history.Operations[i]
		if op.Kind != history.Join || op.Outcome != history.OK {
			continue
		}
		l := life{op.Session, op.Return, never}
		if at, known := ended[op.Session]; known {
			l.end = at
		}
		out[op.Process] = append(out[op.Process], l)
	}
	for _, all := range out {
		slices.SortFunc(all, func(a, b life) int { return cmp.Compare(a.begin, b.begin) })
	}
	return out
}

// The result is the beginning of the last session that a process began by the given time.
func since(all []life, at history.Instant) (begin history.Instant) {
	for _, l := range all {
		if l.begin <= at {
			begin = l.begin
		}
	}
	return begin
}

// struck reports whether a process was killed, was stopped, or left in the given period.
func (e *evidence) struck(process string, from, to history.Instant) bool {
	return slices.ContainsFunc(e.injections, func(k *injection) bool {
		switch f := k.step.Fault; {
		case k.process != process || k.at > to:
			return false
		case f.stops():
			return k.over == 0 || k.over > from
		default:
			return f.kills() || f == faultLeave
		}
	})
}

// delays returns the periods in which a process waited for the store, or did not run.
func (e *evidence) delays(process string) []delay {
	var out []delay
	for _, n := range e.journals[process] {
		switch n.Is {
		case noteSlow:
			out = append(out, delay{reasonSlow, n.At - n.Took, n.At})
		case noteStill:
			out = append(out, delay{reasonStill, n.At - n.Took, n.At})
		default: // no delay
		}
	}
	for i := range e.history.Operations {
		op := &e.history.Operations[i]
		if op.Process == process && (op.Kind == history.Evict || op.Kind == history.Acquire) &&
			op.Return-op.Call > history.Instant(e.config.TTL/20) {
			out = append(out, delay{reasonSlow, op.Call, op.Return})
		}
	}
	return out
}

// The result is the time until the evicting member saw the last heartbeat that the former owner
// sent before the fault. If the store delivers the heartbeat late, the silence begins when it
// arrives.
func (e *evidence) told(t *takeover, former driver.SessionID) []delay {
	for _, op := range e.evicted() {
		if op.Target != former {
			continue
		}
		last := t.at
		for _, n := range e.journals[op.Process] {
			if n.Is == noteHeard && n.Peer == former && n.At-n.Took < op.Call {
				last = max(last, n.At-n.Took)
			}
		}
		return []delay{{reasonSlow, t.at, last}}
	}
	return nil
}

// lost returns the delays from evictions and claims that were lost on the wire. Each delay lasts
// until the call was repeated, or until its process had a fault.
func (e *evidence) lost(t *takeover, former driver.SessionID) []delay {
	ttl := history.Instant(e.config.TTL)
	again := ttl/3 + history.Instant(2*e.rank)
	var out []delay
	for i := range e.history.Operations {
		op := &e.history.Operations[i]
		its := op.Kind == history.Evict && op.Target == former || op.Kind == history.Acquire && op.Shard == t.shard
		if !its || op.Call > t.end || op.Process == t.from || op.Outcome == history.OK || op.Outcome == history.Refused {
			continue
		}
		for _, k := range e.injections {
			if k.process == op.Process && k.process != t.to && k.at > op.Call && k.at < op.Call+ttl {
				out = append(out, delay{reasonStruck, t.at, k.at}) // it may have been the owner
			}
		}
		out = append(out, delay{reasonStruck, op.Call, op.Call + again})
	}
	return out
}
