package system

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/conformance/history"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/core/fsm"
)

// good is the evidence of a run of two processes without a fault: a wrote entries
// 1 and 2 under token 1, was stopped for a moment, and b wrote entry 3 under token
// 5.
func good() *evidence {
	e := &evidence{config: Config{TTL: testTTL}, journals: map[string][]note{},
		logs: map[driver.ShardID][]driver.Entry{}, history: &history.History{}}
	at := history.Instant(1000)
	add := func(process string, n note) {
		at += 1000
		n.At, n.Shard = at, "s"
		e.journals[process] = append(e.journals[process], n)
	}
	seq := driver.Seq(0)
	write := func(process string, n int64, token driver.Token) {
		p := payload{Process: process, N: n, Token: token, Head: seq}
		seq++
		e.logs["s"] = append(e.logs["s"], driver.Entry{Shard: "s", Seq: seq, Token: token, Payload: p.encode()})
		add(process, note{Is: noteWrites, Token: token, N: n})
		add(process, note{Is: noteWrote, Token: token, N: n, Out: wasAccepted, Seq: seq})
	}
	record := func(op history.Operation) {
		at += 1000
		op.Call, op.Return, op.Outcome, op.Shard = at, at+10, history.OK, "s"
		e.history.Operations = append(e.history.Operations, op)
	}
	granted := func(process, session string, token driver.Token) {
		record(history.Operation{Process: process, Kind: history.Join, Session: driver.SessionID(session)})
		f := driver.Fence{Shard: "s", Session: driver.SessionID(session), Token: token}
		record(history.Operation{Process: process, Kind: history.Acquire, Session: f.Session, Granted: f})
		record(history.Operation{Process: process, Kind: history.Trust, Fence: f, Until: at + history.Instant(testTTL)})
		add(process, note{Is: noteStarted, Token: token})
	}
	granted("a", "sa", 1)
	write("a", 1, 1)
	write("a", 2, 1)
	e.injections = append(e.injections, &injection{step: step{Fault: faultShort}, process: "a", at: at + 1,
		over: at + 2})
	at += 1000
	add("a", note{Is: noteStopped, Token: 1, Why: "withdrawn"})
	granted("b", "sb", 5)
	write("b", 1, 5)
	at += history.Instant(10 * testTTL)
	e.injections = append(e.injections,
		&injection{step: step{Fault: faultPause}, at: at, over: at + history.Instant(testTTL)})
	return e
}

func lastNote(e *evidence, process string) *note {
	return &e.journals[process][len(e.journals[process])-1]
}

func TestJudge(t *testing.T) {
	t.Parallel()
	entry := func(e *evidence, i int) *driver.Entry { return &e.logs["s"][i] }
	// late has b take over two TTLs late, while heartbeats of a process were slow.
	late := func(slow string) func(*evidence) {
		return func(e *evidence) {
			at := lastNote(e, "a").At
			e.injections = []*injection{{step: step{Fault: faultKill}, process: "a", at: at - 1}}
			for i := range e.history.Operations {
				if op := &e.history.Operations[i]; op.Process == "b" {
					op.Call, op.Return = op.Call+history.Instant(2*testTTL), op.Return+history.Instant(2*testTTL)
				}
			}
			for i := range history.Instant(8) { // they overlap
				took := history.Instant(testTTL / 2)
				e.journals[slow] = append(e.journals[slow], note{Is: noteSlow, At: at + took + i*took/3, Took: took})
			}
		}
	}
	last := lastNote
	for _, c := range []struct {
		name, want string
		spoil      func(e *evidence)
	}{
		{"nothing", "", func(*evidence) {}},
		{"a gap", "T1 " + checkLog, func(e *evidence) { entry(e, 2).Seq = 4 }},
		{"tokens decrease", "T2 " + checkLog, func(e *evidence) { entry(e, 1).Token = 7 }},
		{"a former owner's write", "S3 " + checkBelief, func(e *evidence) {
			entry(e, 2).Payload = payload{Process: "a", N: 3, Token: 1, Head: 2}.encode()
		}},
		{"out of place", "S15 " + checkBelief, func(e *evidence) {
			entry(e, 1).Payload = payload{Process: "a", N: 2, Token: 1, Head: 0}.encode()
		}},
		{"a stranger's entry", "T3 " + checkBelief, func(e *evidence) { entry(e, 2).Payload = []byte("x") }},
		{"acknowledged and lost", "S16 " + checkOnce, func(e *evidence) { e.logs["s"] = e.logs["s"][:2] }},
		{"acknowledged elsewhere", "S16 " + checkOnce, func(e *evidence) { last(e, "b").Seq = 9 }},
		{"refused and there", "S16 " + checkOnce, func(e *evidence) { last(e, "b").Out = wasRefused }},
		{"unknown and there twice", "S15 " + checkOnce, func(e *evidence) {
			last(e, "b").Out = wasUnknown
			twice := *entry(e, 2)
			twice.Seq = 4
			e.logs["s"] = append(e.logs["s"], twice)
		}},
		{"two handlers at once", "S11 " + checkHandlers, func(e *evidence) {
			e.journals["b"] = append(e.journals["b"], note{Is: noteStarted, Shard: "s", Token: 9})
		}},
		{"an older token later", "S11 " + checkHandlers, func(e *evidence) {
			e.journals["a"] = append(e.journals["a"], note{Is: noteStarted, Shard: "s", Token: 1})
		}},
		{"stopped and not started", "S11 " + checkHandlers, func(e *evidence) {
			e.journals["a"] = append(e.journals["a"], note{Is: noteStopped, Shard: "s", Token: 1})
		}},
		{"a wrong reading", "F1 " + checkRead, func(e *evidence) {
			e.journals["a"] = append(e.journals["a"], note{Is: noteWrong, Shard: "s", Token: 1, Wrong: "differs"})
		}},
		{"a lapse after a short stop", "S9 " + checkShortStop, func(e *evidence) { last(e, "a").Why = fmt.Sprint(fsm.CauseLapsed) }},
		{"a takeover in time", "", func(e *evidence) {
			e.injections = []*injection{{step: step{Fault: faultKill}, process: "a", at: lastNote(e, "a").At - 1}}
		}},
		{"a takeover that takes too long", "V1 " + checkInTime, late("-")},
		{"a takeover while the store was slow", "", late("b")},
		{"a takeover while only others found it slow", "V1 " + checkInTime, late("c")},
		{"an eviction in an outage", "C5 " + checkOutage, func(e *evidence) {
			e.history.Operations = append(e.history.Operations, history.Operation{Process: "a", Kind: history.Evict,
				Target: "sb",
				Call:   e.injections[1].at + 5, Return: e.injections[1].at + 6, Outcome: history.OK})
		}},
		{"a process that ends a session of its own in an outage", "", func(e *evidence) {
			e.history.Operations = append(e.history.Operations, history.Operation{Process: "b", Kind: history.Evict,
				Target: "sb",
				Call:   e.injections[1].at + 5, Return: e.injections[1].at + 6, Outcome: history.OK})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := good()
			c.spoil(e)
			var got []string
			for _, f := range e.judge() {
				got = append(got, f.Rule+" "+f.Check)
			}
			if c.want == "" && len(got) > 0 {
				t.Errorf("found %q in a good run", got)
			}
			for _, g := range got {
				if g == c.want {
					return
				}
			}
			if c.want != "" {
				t.Errorf("found %q, want %q among them", got, c.want)
			}
		})
	}
}

func TestMeasure(t *testing.T) {
	t.Parallel()
	e := good()
	f := driver.Fence{Shard: "s", Session: "sa", Token: 1}
	commit := func(digest string, o history.Outcome, reason string) {
		e.history.Operations = append(e.history.Operations, history.Operation{Process: "a", Kind: history.Commit,
			Shard: "s", Fence: f,
			Outcome: o, Reason: reason, Entries: []history.Entry{{Token: 1, Digest: digest}}})
	}
	commit("x", history.Unknown, "lost")
	commit("x", history.Unknown, "lost")
	commit("x", history.OK, "")
	commit("y", history.Unknown, "lost")
	commit("z", history.Refused, history.ReasonFenced)
	e.journals["a"][2].Digest = "x"
	e.injections = append([]*injection{{step: step{Fault: faultKill}, process: "a",
		at: e.history.Operations[3].Call - 500}}, e.injections...)
	r := e.measure([]history.Finding{{Overlap: 3 * time.Microsecond}, {Rule: "S3", Check: checkBelief}})
	r.add(&Report{Runs: 1, Accepted: 10, TTL: testTTL, Took: []time.Duration{2 * testTTL},
		Faults: map[string]int{string(faultKill): 1}})
	if r.Runs != 2 || r.Accepted != 13 || r.Fenced != 1 || r.Ambiguous != 2 || r.Resolved != 1 || r.Damage != 1 ||
		r.Overlap != 3*time.Microsecond || r.Takeovers != 1 || len(r.Took) != 2 || r.Faults[string(faultKill)] != 2 {
		t.Errorf("measured %+v", r)
	}
	if got := r.quantile(1); got != 2 {
		t.Errorf("the longest takeover is %v TTL, want 2", got)
	}
}
