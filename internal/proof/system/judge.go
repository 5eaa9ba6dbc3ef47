package system

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/proof/history"
)

// This package makes these checks in addition to the checks of package history.
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
	checkEvicted   = "evictions-are-told"
)

// Judged returns the rules that each run checks. The evidence consists of the logs, the journals,
// the histories of calls, the traces, and the end of the run.
func Judged() []string {
	return []string{"A1", "A2", "C5", "C9", "E1", "F1", "L1", "L2", "M1", "M2", "M3", "S1", "S2", "S3", "S9", "S11", "S15", "S16", "T1", "T2", "T3",
		"V1", "V2", "V6", "W1"}
}

// evidence contains the output of a run.
type evidence struct {
	config     Config
	history    *history.History
	journals   map[string][]note // by process
	logs       map[driver.ShardID][]driver.Entry
	injections []*injection
	poll       time.Duration // Limits.PollPeriod
	rank       time.Duration // time between the turns of candidates for one shard or eviction (C9)
}

// written identifies a write across processes.
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
		e.logsInOrder, e.belief, e.once, e.handlers, e.reads, e.shortStops, e.outages, e.inTime, e.evictions,
	} {
		out = append(out, check()...)
	}
	return out
}

// logsInOrder finds gaps and decreasing tokens in the final logs (L1, T1, T2).
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

// belief finds entries that the store accepted under a token other than the one that their writer
// believed it held (S3). Without a fence, a former owner causes this damage.
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

// The findings are acknowledged writes that are not exactly once, and at the right place, in the
// log. Refused writes in the log, and writes that are in the log twice, are findings too (S15,
// S16).
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

// handlers finds handlers of one shard in one process that overlap, or whose tokens do not increase
// (S11).
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
			default: // not about a handler
			}
		}
	}
	return out
}

// These are the mistakes that handlers found (F1).
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

// shortStops finds leases that lapsed although the stop of their process was shorter than the
// remaining trust (S9).
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

// outages finds members that were evicted because of a store outage, although they had no fault
// (C5). If the reply to a join was lost, the process joins again, and may thereby end its earlier
// session. If the store has several servers, some servers may serve long before the last server
// runs again. With several servers, the outage therefore ends one TTL after the first answer.
func (e *evidence) outages() []history.Finding {
	process := map[driver.SessionID]string{}
	exited := map[string]bool{}
	for i := range e.history.Operations {
		switch op := &e.history.Operations[i]; op.Kind {
		case history.Join:
			process[op.Session] = op.Process
		case history.Exit:
			exited[op.Ended] = true
		default: // neither begins nor ends a process
		}
	}
	ttl := history.Instant(e.config.TTL)
	absences := e.absences()
	var out []history.Finding
	for _, k := range e.injections {
		if !k.step.Fault.ofStore() {
			continue
		}
		until := k.over + ttl/2
		for _, d := range absences { // in order
			if d.from < k.over && d.to > k.at {
				until = min(k.over+ttl/2, d.to+ttl)
			}
		}
		faulted := map[string]bool{}
		for _, other := range e.injections {
			if other.at < k.over+ttl && (other.over == 0 || other.over > k.at-2*ttl) {
				faulted[other.process] = true
			}
		}
		for _, op := range e.history.Operations {
			if op.Kind != history.Evict || op.Outcome != history.OK || op.Call < max(k.at, k.took) || op.Call > until {
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

// evictions finds evicted sessions that the evicting process did not report exactly once (C9). If
// the evicting process was killed within a TTL after the answer, the report may be missing.
func (e *evidence) evictions() []history.Finding {
	told := map[driver.SessionID][]string{}
	for _, process := range slices.Sorted(maps.Keys(e.journals)) {
		for _, n := range e.journals[process] {
			if n.Is == noteEvicted {
				told[n.Peer] = append(told[n.Peer], process)
			}
		}
	}
	var out []history.Finding
	for _, op := range e.evicted() {
		said := told[op.Target]
		if slices.Equal(said, []string{op.Process}) || len(said) == 0 && e.killed(op.Process, op.Return) {
			continue
		}
		f := newFinding("C9", checkEvicted, "", "%s evicted session %s, and those that say so are %q", op.Process, op.Target, said)
		f.Operations = []history.Operation{*op}
		out = append(out, f)
	}
	return out
}

// These are the evictions that the evicting process knows to have succeeded.
func (e *evidence) evicted() (out []*history.Operation) {
	for i := range e.history.Operations {
		if op := &e.history.Operations[i]; op.Kind == history.Evict && op.Outcome == history.OK {
			out = append(out, op)
		}
	}
	return out
}

// crashEvictions returns how many sessions of killed processes a member evicted, and how many of
// these evictions the member reported.
func (e *evidence) crashEvictions() (all, told int) {
	process := map[driver.SessionID]string{}
	for i := range e.history.Operations {
		if op := &e.history.Operations[i]; op.Kind == history.Join {
			process[op.Session] = op.Process
		}
	}
	for _, op := range e.evicted() {
		if !slices.ContainsFunc(e.injections, func(k *injection) bool {
			return k.process == process[op.Target] && k.step.Fault.kills() && k.at < op.Return
		}) {
			continue
		}
		all++
		if slices.ContainsFunc(e.journals[op.Process], func(n note) bool { return n.Is == noteEvicted && n.Peer == op.Target }) {
			told++
		}
	}
	return all, told
}

// killed reports whether a process was killed within a TTL after the given time.
func (e *evidence) killed(process string, after history.Instant) bool {
	return slices.ContainsFunc(e.injections, func(k *injection) bool {
		return k.process == process && k.step.Fault.kills() && k.at > after && k.at < after+history.Instant(e.config.TTL)
	})
}
