package system

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// good returns the evidence of a correct run of two processes. Process a wrote entries 1 and 2
// under token 1 and was stopped for a moment. Process b wrote entry 3 under token 5.
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
	const ttl = history.Instant(testTTL)
	// taken makes b take over after so many TTLs. b has been a member from the beginning, or since
	// an instant after the kill of a. other delays the takeover by its events at the instant of the
	// kill.
	taken := func(after float64, since history.Instant, other func(e *evidence, at history.Instant)) func(*evidence) {
		return func(e *evidence) {
			at := lastNote(e, "a").At - 1
			e.injections = []*injection{{step: step{Fault: faultKill}, process: "a", at: at}}
			for i := range e.history.Operations {
				switch op := &e.history.Operations[i]; {
				case op.Process != "b":
				case op.Kind == history.Join && since == 0:
					op.Call, op.Return = 1, 2
				case op.Kind == history.Join:
					op.Call, op.Return = at+since-1, at+since
				default:
					op.Call = at + history.Instant(after*float64(ttl))
					op.Return = op.Call + 10
				}
			}
			if other != nil {
				other(e, at)
			}
		}
	}
	delayed := func(process string, what noteKind) func(*evidence, history.Instant) { // for 1.5 TTL
		return func(e *evidence, at history.Instant) {
			for i := range history.Instant(4) { // they overlap
				e.journals[process] = append(e.journals[process], note{Is: what, At: at + ttl/2 + i*ttl/3, Took: ttl / 2})
			}
		}
	}
	struck := func(f fault, process string, from, to history.Instant) func(*evidence, history.Instant) {
		return func(e *evidence, at history.Instant) {
			e.injections = append(e.injections, &injection{step: step{Fault: f}, process: process, at: at + from, over: at + to})
		}
	}
	// beats makes b send heartbeats every TTL/4 from the kill on, which take TTL/20. Those sent
	// between two instants after it fail.
	beats := func(from, to, until history.Instant) func(*evidence, history.Instant) {
		return func(e *evidence, at history.Instant) {
			for sent := history.Instant(0); sent < until; sent += ttl / 4 {
				n := note{Is: noteBeat, At: at + sent + ttl/20, Took: ttl / 20}
				if sent >= from && sent < to {
					n.Why = "no leader"
				}
				e.journals["b"] = append(e.journals["b"], n)
			}
		}
	}
	// heard makes b evict a after two TTLs, and a member see the last heartbeat of a after one.
	heard := func(process string) func(*evidence, history.Instant) {
		return func(e *evidence, at history.Instant) {
			beats(0, 0, 3*ttl)(e, at)
			e.journals[process] = append(e.journals[process], note{Is: noteHeard, Peer: "sa", At: at + ttl + 5, Took: 5})
			e.journals["b"] = append(e.journals["b"], note{Is: noteEvicted, Peer: "sa"})
			e.history.Operations = append(e.history.Operations, history.Operation{Process: "b", Kind: history.Evict,
				Target: "sa", Call: at + 2*ttl, Return: at + 2*ttl + 1, Outcome: history.OK})
		}
	}
	// both applies all functions in order.
	both := func(all ...func(*evidence, history.Instant)) func(*evidence, history.Instant) {
		return func(e *evidence, at history.Instant) {
			for _, f := range all {
				f(e, at)
			}
		}
	}
	bystander := func(then func(*evidence, history.Instant)) func(*evidence, history.Instant) {
		return func(e *evidence, at history.Instant) {
			e.history.Operations = append(e.history.Operations, history.Operation{Process: "c", Kind: history.Join,
				Session: "sc", Call: 1, Return: 2, Outcome: history.OK})
			then(e, at)
		}
	}
	// watches makes b send heartbeats for two TTLs before an instant, with a gap between two other
	// instants, and then evict a.
	watches := func(e *evidence, at, from, to history.Instant) {
		for sent := at - 2*ttl; sent < at; sent += ttl / 4 {
			if sent < from || sent >= to {
				e.journals["b"] = append(e.journals["b"], note{Is: noteBeat, At: sent + ttl/20, Took: ttl / 20})
			}
		}
		e.history.Operations = append(e.history.Operations, history.Operation{Process: "b", Kind: history.Evict,
			Target: "sa", Call: at, Return: at + 1, Outcome: history.OK})
	}
	const late = 20 * ttl
	evicts := func(said ...string) func(*evidence) {
		return func(e *evidence) {
			watches(e, late, late, late)
			for _, process := range said {
				e.journals[process] = append(e.journals[process], note{Is: noteEvicted, Peer: "sa", At: late + 2})
			}
		}
	}
	// reboots makes the store absent for half a TTL, and one of its servers for ten TTLs. Process b
	// then evicts a.
	reboots := func(after history.Instant) func(*evidence) {
		return func(e *evidence) {
			away := late - after - ttl
			e.injections = append(e.injections, &injection{step: step{Fault: faultReboot}, at: away, over: away + 10*ttl})
			watches(e, late, away, away+ttl)
			e.journals["b"] = append(e.journals["b"], note{Is: noteEvicted, Peer: "sa", At: late + 2},
				note{Is: noteBeat, At: away + ttl, Took: ttl})
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
		{"a takeover in time", "", taken(1, 0, nil)},
		{"a takeover that takes too long", "V1 " + checkInTime, taken(2.5, 0, nil)},
		{"one that takes a little too long, alone", "V1 " + checkInTime, taken(1.4, 0, nil)},
		{"the same beside another fault", "", taken(1.4, 0, bystander(struck(faultStop, "c", 0, 2*ttl)))},
		{"while the store was slow", "", taken(2.5, 0, delayed("b", noteSlow))},
		{"while only others found it slow", "V1 " + checkInTime, taken(2.5, 0, delayed("c", noteSlow))},
		{"while the last heartbeat was seen late", "", taken(2.04, 0, heard("b"))},
		{"while it was seen late by another than the one that evicts", "V1 " + checkInTime, taken(2.04, 0, heard("c"))},
		{"long after it was seen", "V1 " + checkInTime, taken(2.5, 0, heard("b"))},
		{"while the machine stood still", "", taken(2.5, 0, delayed("b", noteStill))},
		{"while it stood still for less", "V1 " + checkInTime, taken(3.2, 0, delayed("b", noteStill))},
		{"while a member that ran did nothing", "V1 " + checkInTime,
			taken(2.5, 0, bystander(delayed("b", noteStill)))},
		{"after an outage", "", taken(3, 0, struck(faultPause, "", ttl, 2*ttl))},
		{"long after an outage", "V1 " + checkInTime, taken(4, 0, struck(faultPause, "", ttl, 2*ttl))},
		{"while the store elected a leader", "", taken(2.6, 0, beats(ttl/2, 3*ttl/2, 3*ttl))},
		{"long after it had elected one", "V1 " + checkInTime, taken(3, 0, beats(ttl/2, 3*ttl/2, 3*ttl))},
		{"while it refused a few heartbeats", "V1 " + checkInTime, taken(2, 0, beats(3*ttl/4, ttl, 3*ttl))},
		{"while it answered all of them", "V1 " + checkInTime, taken(2.5, 0, beats(0, 0, 3*ttl))},
		{"while nobody asked it", "V1 " + checkInTime, taken(2.5, 0, beats(ttl/2, 3*ttl/4, ttl/2))},
		{"while it took the writes of another member", "V1 " + checkInTime, taken(2.6, 0,
			both(beats(ttl/2, 3*ttl/2, 3*ttl), func(e *evidence, at history.Instant) {
				for i := range history.Instant(8) {
					e.history.Operations = append(e.history.Operations, history.Operation{Process: "c", Kind: history.Commit,
						Shard: "s2", Call: at + i*ttl/4, Return: at + i*ttl/4 + ttl/20, Outcome: history.OK})
				}
			}))},
		{"while it elected one after the eviction", "V1 " + checkInTime, taken(2.6, 0,
			both(beats(5*ttl/4, 9*ttl/4, 3*ttl), func(e *evidence, at history.Instant) {
				e.history.Operations = append(e.history.Operations, history.Operation{Process: "b", Kind: history.Evict,
					Target: "sa", Call: at + ttl, Return: at + ttl + ttl/40, Outcome: history.OK})
				e.journals["b"] = append(e.journals["b"], note{Is: noteEvicted, Peer: "sa"})
			}))},
		{"by a successor that was stopped", "", taken(2.5, 0, struck(faultStop, "b", ttl/2, 3*ttl/2))},
		{"long after that", "V1 " + checkInTime, taken(3.5, 0, struck(faultStop, "b", ttl/2, 3*ttl/2))},
		{"by a successor that came when nobody was there", "", taken(2, ttl, nil)},
		{"by one that came then, and had its turns", "", taken(2.4, ttl, nil)},
		{"long after it came", "V1 " + checkInTime, taken(2.6, ttl, nil)},
		{"by one that came, while another did nothing", "V1 " + checkInTime,
			taken(2, ttl, bystander(func(*evidence, history.Instant) {}))},
		{"by one that was evicted, and came again when nobody was there", "", taken(2, ttl, func(e *evidence, at history.Instant) {
			e.history.Operations = slices.Insert(e.history.Operations, 0,
				history.Operation{Process: "b", Kind: history.Join, Session: "sb0", Call: 1, Return: 2, Outcome: history.OK},
				history.Operation{Process: "b", Kind: history.Evict, Target: "sb0", Call: at + ttl/4, Return: at + ttl/3, Outcome: history.OK})
			e.journals["b"] = append(e.journals["b"], note{Is: noteEvicted, Peer: "sb0"})
		})},
		{"an eviction that is told", "", evicts("b")},
		{"one that is not told", "C9 " + checkEvicted, evicts()},
		{"one that another member claims", "C9 " + checkEvicted, evicts("a")},
		{"one that is told twice", "C9 " + checkEvicted, evicts("b", "b")},
		{"one of a process that was killed then", "", func(e *evidence) {
			evicts()(e)
			e.injections = append(e.injections, &injection{step: step{Fault: faultKill}, process: "b", at: late + 2})
		}},
		{"one when most of the servers have served again for long", "", reboots(ttl * 9 / 8)},
		{"one before that", "C5 " + checkOutage, reboots(ttl * 7 / 8)},
		{"an eviction in an outage", "C5 " + checkOutage, evictedInOutage(4)},
		{"a process that ends a session of its own in an outage", "", func(e *evidence) {
			e.history.Operations = append(e.history.Operations, history.Operation{Process: "b", Kind: history.Evict,
				Target: "sb",
				Call:   e.injections[1].at + 5, Return: e.injections[1].at + 6, Outcome: history.OK})
			e.journals["b"] = append(e.journals["b"], note{Is: noteEvicted, Peer: "sb"})
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

// evictedInOutage makes one member evict another at 5 after an outage began, which took effect at
// took.
func evictedInOutage(took history.Instant) func(*evidence) {
	return func(e *evidence) {
		k := e.injections[1]
		k.took = k.at + took
		e.history.Operations = append(e.history.Operations, history.Operation{Process: "a", Kind: history.Evict,
			Target: "sb", Call: k.at + 5, Return: k.at + 6, Outcome: history.OK})
	}
}

// TestOutageTakes: the outage is no reason for an eviction while the fault still waits for the
// store's lock.
func TestOutageTakes(t *testing.T) {
	t.Parallel()
	e := good()
	evictedInOutage(6)(e)
	if found := e.outages(); len(found) > 0 {
		t.Errorf("found %v before the outage had begun", found)
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
	r.add(&Report{Figures: suite.Figures{Runs: 1, Accepted: 10, TTL: testTTL}, Faults: map[string]int{string(faultKill): 1},
		took: map[cause][]time.Duration{anyCause: {2 * testTTL}}})
	if r.Runs != 2 || r.Accepted != 13 || r.Fenced != 1 || r.Ambiguous != 2 || r.Resolved != 1 || r.Damage != 1 ||
		r.Overlap != 3 || r.Takeovers != 1 || r.ByForce != 2 || r.Faults[string(faultKill)] != 2 {
		t.Errorf("measured %+v", r)
	}
	if r.Most != 2 {
		t.Errorf("the longest takeover is %v TTL, want 2", r.Most)
	}
}
