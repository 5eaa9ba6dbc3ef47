package system

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/conformance/history"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/core/fsm"
)

// The checks of this package, beside those of package history.
const (
	checkOnce      = "acknowledged-exactly-once"
	checkBelief    = "nothing-accepted-under-a-superseded-token"
	checkLog       = "log-contiguous-tokens-non-decreasing"
	checkHandlers  = "handlers-start-and-stop-in-order"
	checkRead      = "reads-under-a-lease"
	checkShortStop = "short-stop-changes-nothing"
	checkOutage    = "an-outage-evicts-nobody"
	checkForgotten = "no-shard-forgotten"
	checkShutdown  = "shutdown"
	checkPlayed    = "played-to-the-end"
	checkTakeovers = "enough-takeovers"
	checkInTime    = "takeovers-in-time"
	checkLate      = "writes-that-come-late"
)

// evidence is the output of a run.
type evidence struct {
	config     Config
	history    *history.History
	journals   map[string][]note // by process
	logs       map[driver.ShardID][]driver.Entry
	injections []*injection
}

// written names a write over processes.
type written struct {
	process string
	n       int64
}

func newFinding(rule, check string, shard driver.ShardID, format string, args ...any) history.Finding {
	return history.Finding{Rule: rule, Check: check, Shard: shard, Message: fmt.Sprintf(format, args...)}
}

// judge applies every check of this package.
func (e *evidence) judge() []history.Finding {
	var out []history.Finding
	for _, check := range []func() []history.Finding{
		e.logsInOrder, e.belief, e.once, e.handlers, e.reads, e.shortStops, e.outages, e.inTime,
	} {
		out = append(out, check()...)
	}
	return out
}

// logsInOrder finds gaps and decreasing tokens in the logs as they were at the end
// (L1, T1, T2).
func (e *evidence) logsInOrder() []history.Finding {
	var out []history.Finding
	for _, shard := range slices.Sorted(maps.Keys(e.logs)) {
		for i, entry := range e.logs[shard] {
			if want := driver.Seq(i + 1); entry.Seq != want {
				out = append(out, newFinding("T1", checkLog, shard, "entry %d is where entry %d belongs", entry.Seq,
					want))
				break
			}
			if i > 0 && entry.Token < e.logs[shard][i-1].Token {
				out = append(out, newFinding("T2", checkLog, shard, "entry %d has token %d, after token %d", entry.Seq,
					entry.Token, e.logs[shard][i-1].Token))
			}
		}
	}
	return out
}

// belief finds entries that were accepted under another token than their writer
// believed in: damage, as a former owner does it where there is no fence (S3).
func (e *evidence) belief() []history.Finding {
	var out []history.Finding
	for _, shard := range slices.Sorted(maps.Keys(e.logs)) {
		for _, entry := range e.logs[shard] {
			p, err := decodePayload(entry.Payload)
			switch {
			case err != nil:
				out = append(out, newFinding("T3", checkBelief, shard, "entry %d was not written by a member: %v",
					entry.Seq, err))
			case p.Token != entry.Token:
				out = append(out, newFinding("S3", checkBelief, shard,
					"entry %d was written by %s under token %d, and was accepted when token %d was current",
					entry.Seq, p.Process, p.Token, entry.Token))
			case p.Head+1 != entry.Seq:
				out = append(out, newFinding("S15", checkBelief, shard,
					"entry %d was written by %s as entry %d, and something came between under its own token %d",
					entry.Seq, p.Process, p.Head+1, p.Token))
			}
		}
	}
	return out
}

// once finds acknowledged writes that are not in the log exactly once, in their
// place, refused ones that are, and any that are there twice (S15, S16).
func (e *evidence) once() []history.Finding {
	at := map[written][]driver.Entry{}
	for _, entries := range e.logs {
		for _, entry := range entries {
			if p, err := decodePayload(entry.Payload); err == nil {
				at[written{p.Process, p.N}] = append(at[written{p.Process, p.N}], entry)
			}
		}
	}
	var out []history.Finding
	for _, process := range slices.Sorted(maps.Keys(e.journals)) {
		for _, n := range e.journals[process] {
			if n.Is != noteWrites && n.Is != noteWrote {
				continue
			}
			found := at[written{process, n.N}]
			what := fmt.Sprintf("write %d of %s under token %d", n.N, process, n.Token)
			switch {
			case len(found) > 1:
				out = append(out, newFinding("S15", checkOnce, n.Shard,
					"%s is in the log %d times, as entries %d and %d", what, len(found), found[0].Seq, found[1].Seq))
			case n.Out == wasAccepted && len(found) == 0:
				out = append(out, newFinding("S16", checkOnce, n.Shard,
					"%s was acknowledged as entry %d and is not in the log", what, n.Seq))
			case n.Out == wasAccepted && (found[0].Seq != n.Seq || found[0].Shard != "" && found[0].Shard != n.Shard):
				out = append(out, newFinding("S16", checkOnce, n.Shard,
					"%s was acknowledged as entry %d and is entry %d", what, n.Seq, found[0].Seq))
			case n.Out == wasRefused && len(found) > 0:
				out = append(out, newFinding("S16", checkOnce, n.Shard, "%s was refused (%s) and is entry %d", what,
					n.Why, found[0].Seq))
			}
		}
	}
	return out
}

// handlers finds handlers of one shard in one process that overlap, or whose
// tokens do not increase (S11).
func (e *evidence) handlers() []history.Finding {
	var out []history.Finding
	for _, process := range slices.Sorted(maps.Keys(e.journals)) {
		running := map[driver.ShardID]driver.Token{}
		newest := map[driver.ShardID]driver.Token{}
		for _, n := range e.journals[process] {
			switch n.Is {
			case noteStarted:
				if t, is := running[n.Shard]; is {
					out = append(out, newFinding("S11", checkHandlers, n.Shard,
						"%s started token %d before the handler of token %d had returned", process, n.Token, t))
				}
				if n.Token <= newest[n.Shard] {
					out = append(out, newFinding("S11", checkHandlers, n.Shard, "%s started token %d after token %d",
						process, n.Token, newest[n.Shard]))
				}
				running[n.Shard], newest[n.Shard] = n.Token, n.Token
			case noteStopped:
				if t, is := running[n.Shard]; !is || t != n.Token {
					out = append(out, newFinding("S11", checkHandlers, n.Shard,
						"%s stopped token %d, which had not been started", process, n.Token))
				}
				delete(running, n.Shard)
			}
		}
	}
	return out
}

// reads passes on mistakes that handlers found (F1).
func (e *evidence) reads() []history.Finding {
	var out []history.Finding
	for _, process := range slices.Sorted(maps.Keys(e.journals)) {
		for _, n := range e.journals[process] {
			if n.Is == noteWrong {
				out = append(out, newFinding("F1", checkRead, n.Shard, "%s under token %d: %s", process, n.Token,
					n.Wrong))
			}
		}
	}
	return out
}

// shortStops finds leases that lapsed although their process was stopped for
// less time than it was trusted for when it was stopped (S9).
func (e *evidence) shortStops() []history.Finding {
	type lease struct {
		process string
		fence   driver.Fence
	}
	until := map[lease]history.Instant{} // as known when the process was stopped
	var out []history.Finding
	for _, k := range e.injections {
		if k.step.Fault != faultShort {
			continue
		}
		clear(until)
		for i := range e.history.Operations {
			op := &e.history.Operations[i]
			if op.Kind == history.Trust && op.Process == k.process && op.Call <= k.at {
				l := lease{op.Process, op.Fence}
				until[l] = max(until[l], op.Until)
			}
		}
		for _, n := range e.journals[k.process] {
			if n.Is != noteStopped || n.Why != fmt.Sprint(fsm.CauseLapsed) || n.At < k.at {
				continue
			}
			for l, end := range until {
				if l.fence.Shard == n.Shard && l.fence.Token == n.Token && n.At < end {
					out = append(out, newFinding("S9", checkShortStop, n.Shard,
						"%s was stopped for %v at most, and dropped token %d as lapsed %v before its trust ended",
						k.process, time.Duration(k.over-k.at), n.Token, time.Duration(end-n.At)))
				}
			}
		}
	}
	return out
}

// outages finds members that were evicted for an outage of the store, although
// nothing had happened to them (C5). A process may end a session of its own: the
// reply to a join was lost, and it joined again.
func (e *evidence) outages() []history.Finding {
	process := map[driver.SessionID]string{}
	exited := map[string]bool{}
	for i := range e.history.Operations {
		switch op := &e.history.Operations[i]; op.Kind {
		case history.Join:
			process[op.Session] = op.Process
		case history.Exit:
			exited[op.Ended] = true
		}
	}
	ttl := history.Instant(e.config.TTL)
	var out []history.Finding
	for _, k := range e.injections {
		if !k.step.Fault.ofStore() {
			continue
		}
		faulted := map[string]bool{}
		for _, other := range e.injections {
			if other.at < k.over+ttl && (other.over == 0 || other.over > k.at-2*ttl) {
				faulted[other.process] = true
			}
		}
		for _, op := range e.history.Operations {
			if op.Kind != history.Evict || op.Outcome != history.OK || op.Call < k.at || op.Call > k.over+ttl/2 {
				continue
			}
			if victim := process[op.Target]; victim != "" && victim != op.Process && !faulted[victim] {
				f := newFinding("C5", checkOutage, "", "%s evicted %s while nobody could write to the store",
					op.Process, victim)
				f.Operations = []history.Operation{op}
				out = append(out, f)
			}
		}
	}
	return out
}

// takeover is a change of a shard's owner.
type takeover struct {
	shard    driver.ShardID
	from, to string // processes
	took     time.Duration
	forced   bool // the former owner had a fault; took counts from then
	cause    cause
	alone    bool          // there was no other fault meanwhile
	longest  time.Duration // call that any other process made meanwhile
	waited   time.Duration // of that time, to waited for slow answers to heartbeats
}

// cause says why an owner was taken over from.
type cause string

const (
	causeCrash  cause = "crash"  // its process was killed
	causeStop   cause = "stop"   // its process was stopped
	causeOutage cause = "outage" // and the store was away as well: counted from its return
)

// inTime finds takeovers that took longer than a TTL and half of one, after a fault
// of the owner without another fault meanwhile (V1). The half is for the order of
// claims, the poll period and a few round trips of a quiet machine; the delay of a
// slower machine shows in the calls of the others, and in how long the one that took
// over waited for the store's answers to its heartbeats.
func (e *evidence) inTime() []history.Finding {
	var out []history.Finding
	for _, t := range e.takeovers() {
		bound := e.config.TTL*3/2 + 5*t.longest + t.waited
		if t.forced && t.alone && t.cause != causeOutage && t.took > bound {
			out = append(out, newFinding("V1", checkInTime, t.shard,
				"%s took over from %s %v after its %s, want at most %v",
				t.to, t.from, t.took, t.cause, bound))
		}
	}
	return out
}

// takeovers returns every change of owner between processes, and the time that it
// took after a fault that the former owner did not survive as an owner.
func (e *evidence) takeovers() []takeover {
	process := map[driver.SessionID]string{}
	granted := map[driver.ShardID][]*history.Operation{}
	for i := range e.history.Operations {
		op := &e.history.Operations[i]
		switch {
		case op.Kind == history.Join:
			process[op.Session] = op.Process
		case op.Outcome == history.OK && op.Granted.Token > 0:
			granted[op.Shard] = append(granted[op.Shard], op)
		}
	}
	var out []takeover
	for _, shard := range slices.Sorted(maps.Keys(granted)) {
		ops := granted[shard]
		slices.SortStableFunc(ops, func(a, b *history.Operation) int {
			return cmp.Or(cmp.Compare(a.Granted.Token, b.Granted.Token), cmp.Compare(a.Return, b.Return))
		})
		for i := 1; i < len(ops); i++ {
			former, now := ops[i-1], ops[i]
			t := takeover{shard: shard, from: process[former.Granted.Session], to: process[now.Granted.Session]}
			if t.from == t.to {
				continue
			}
			for _, k := range e.injections {
				if k.process == t.from && k.step.Fault.takesOver() && k.at > former.Return && k.at < now.Return &&
					(k.over == 0 || k.over > now.Call) {
					e.force(&t, k, now)
				}
			}
			out = append(out, t)
		}
	}
	return out
}

// force notes that t was the consequence of fault k, and the other faults until the
// new grant.
func (e *evidence) force(t *takeover, k *injection, now *history.Operation) {
	t.forced, t.took, t.alone, t.cause = true, time.Duration(now.Return-k.at), true, causeStop
	switch k.step.Fault {
	case faultKill, faultRestart, faultSupersede:
		t.cause = causeCrash
	}
	ttl := history.Instant(e.config.TTL)
	for _, o := range e.injections {
		if o == k || o.at > now.Return || o.over != 0 && o.over < k.at-ttl {
			continue
		}
		t.alone = false
		if o.step.Fault.ofStore() {
			t.cause = causeOutage
			if o.over > k.at {
				t.took = min(t.took, max(0, time.Duration(now.Return-o.over)))
			}
		}
	}
	t.longest = 0
	for i := range e.history.Operations {
		op := &e.history.Operations[i]
		if op.Process != t.from && op.Return > k.at && op.Call < now.Return && op.Return > op.Call &&
			op.Kind != history.Trust {
			t.longest = max(t.longest, time.Duration(op.Return-op.Call))
		}
	}
	t.waited = e.waited(t.to, k.at, now.Return)
}

// waited is for how much of the time a process had a slow heartbeat, or ping, under way.
func (e *evidence) waited(process string, from, to history.Instant) (all time.Duration) {
	var slow []note
	for _, n := range e.journals[process] {
		if n.Is == noteSlow {
			slow = append(slow, n)
		}
	}
	slices.SortFunc(slow, func(a, b note) int { return cmp.Compare(a.At-a.Took, b.At-b.Took) })
	for _, n := range slow {
		if begin, end := max(from, n.At-n.Took), min(to, n.At); end > begin {
			all += time.Duration(end - begin)
			from = end
		}
	}
	return all
}
