package trace_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/trace"
)

// TestPlantedRunner: the check finds a runner that acts differently from its machine, and a store
// with inconsistent answers. Each fault breaks no other rule, and no step.
func TestPlantedRunner(t *testing.T) {
	t.Parallel()
	call := func(kind string, f func(*trace.Call)) func(*scene) {
		return func(s *scene) { f(s.tape[0].recs[s.called(kind)].Call) }
	}
	lease := func(is string, f func(*trace.Lease)) func(*scene) {
		return func(s *scene) { f(s.tape[0].recs[s.told(is)].Lease) }
	}
	acks := func(f func(*trace.Acks)) func(*scene) { return func(s *scene) { f(s.tape[0].acks(s.t)) } }
	for name, x := range map[string]struct {
		plant func(*scene)
		rule  string
	}{
		"a call of another kind":              {call("beat", func(c *trace.Call) { c.Kind = "read" }), "S7"},
		"a call of another session":           {call("beat", func(c *trace.Call) { c.Session = "x" }), "S7"},
		"a claim of something else":           {call("acquire", func(c *trace.Call) { c.Asked++ }), "S7"},
		"a call of nobody's":                  {call("beat", func(c *trace.Call) { c.Call = 777 }), "S7"},
		"a call is made twice":                {func(s *scene) { s.again(s.called("acquire")) }, "E2"},
		"another answer":                      {call("acquire", func(c *trace.Call) { c.Answer++ }), "S4"},
		"an answer of nobody's":               {func(s *scene) { s.drop(s.called("beat")) }, "S4"},
		"an answer is not given":              {func(s *scene) { s.asksAtLast(true) }, "S4"},
		"a call is not made":                  {func(s *scene) { s.asksAtLast(false) }, "S7"},
		"a view of later":                     {call("observe", func(c *trace.Call) { c.Sent-- }), "S13"},
		"another view":                        {call("observe", func(c *trace.Call) { c.Answer++ }), "S13"},
		"a view that was not read":            {func(s *scene) { s.drop(s.called("observe")) }, "S13"},
		"a view is not given":                 {func(s *scene) { s.again(s.called("observe")); s.tape[0].cut = true }, "S13"},
		"the last view is not given":          {func(s *scene) { s.views(false) }, "S13"},
		"changes are read, and not the whole": {func(s *scene) { s.resync(false) }, "S13"},
		"a lease that was not granted":        {lease(trace.LeaseEnded, func(l *trace.Lease) { l.Fence.Token++ }), "S4"},
		"a lease after its end": {func(s *scene) {
			s.drop(s.place(func(r *trace.Record) bool { return r.Acks != nil }))
			s.later(s.told(trace.LeaseBegun), s.told(trace.LeaseEnded))
		}, "S5"},
		"a commit under a lease of which nobody is told": {func(s *scene) { s.drop(s.told(trace.LeaseBegun)) }, "S4"},
		"a handler beside another":                       {func(s *scene) { s.again(s.told(trace.LeaseBegun)) }, "S11"},
		"trust that the machine does not have":           {lease(trace.LeaseBegun, func(l *trace.Lease) { l.Until++ }), "S8"},
		"the end is not told":                            {func(s *scene) { s.drop(s.told(trace.LeaseEnded)) }, "S9"},
		"an end that is none":                            {func(s *scene) { s.again(s.told(trace.LeaseEnded)) }, "S9"},
		"a lease that is valid after its end":            {lease(trace.LeaseEnded, func(l *trace.Lease) { l.Valid = true }), "S6"},
		"a release before the work was joined":           {func(s *scene) { s.drop(s.told(trace.LeaseJoined)) }, "S12"},
		"a commit after the work was joined": {func(s *scene) {
			s.later(s.place(func(r *trace.Record) bool { return r.Acks != nil }), s.given("drained"))
		}, "S12"},
		"a commit under a lease of nobody's": {acks(func(a *trace.Acks) { a.Fence.Token = 6 }), "S3"},
		"a commit sent after trust":          {acks(func(a *trace.Acks) { a.Sent += fsm.Instant(time.Hour) }), "S5"},
		"a commit that nobody is told of":    {acks(func(a *trace.Acks) { a.From, a.Entries = 2, 2 }), "S4"},
		"a commit that comes again":          {func(s *scene) { s.again(s.place(func(r *trace.Record) bool { return r.Acks != nil })) }, "S15"},
		"entries that nobody appended":       {acks(func(a *trace.Acks) { a.Entries = 2 }), "L1"},
		"entries between two leases":         {func(s *scene) { s.tape[0].head.Runner, s.tape[1].head.Runner = false, false; s.begins(3, 4, 5) }, "L1"},
		"the next lease begins before it":    {func(s *scene) { s.begins(2, 2, 5); s.silent() }, "S3"},
		"the next lease finds another log":   {func(s *scene) { s.begins(3, 4, 5); s.silent() }, "L1"},
		"the next lease finds a commit":      {func(s *scene) { s.begins(4, 4, 5) }, "S4"},
		"the clock goes back":                {func(s *scene) { s.tape[0].recs[s.given("beaten")].At -= 1e9 }, "S9"},
		"a token of two sessions":            {func(s *scene) { s.shows(driver.Owner{Session: "x", Token: 5}) }, "A2"},
		"a view goes back":                   {func(s *scene) { s.shows(driver.Owner{Token: 8}); s.shows(driver.Owner{Token: 7}) }, "O1"},
		"a heartbeat goes back":              {func(s *scene) { s.beats(5, 4) }, "O1"},
		"a session is back":                  {func(s *scene) { s.back() }, "M3"},
		"what a member said goes back":       {func(s *scene) { s.state(2, 1); s.state(1, 1) }, "M4"},
		"what a member did not say":          {func(s *scene) { s.state(0, 2) }, "M4"},
		"a heartbeat after an eviction":      {func(s *scene) { s.evicted(1200 * time.Millisecond) }, "M2"},
		"a claim after an eviction":          {func(s *scene) { s.evicted(1000 * time.Millisecond) }, "M1"},
		"a gift to a session that has gone":  {func(s *scene) { s.gives() }, "A5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.play()
			x.plant(s)
			var rules []string
			r := s.check()
			for _, b := range r.Breaches {
				rules = append(rules, b.Rule)
			}
			if !slices.Contains(rules, x.rule) {
				t.Errorf("found %v, want %q: %+v", rules, x.rule, r.Breaches)
			}
		})
	}
}

// TestPlantedNothing: the permitted actions of a runner are not breaches.
func TestPlantedNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*scene){
		"nothing":                      func(*scene) {},
		"a full state as asked":        func(s *scene) { s.resync(true) },
		"changes sent for before":      func(s *scene) { s.overtaken() },
		"the last view is given":       func(s *scene) { s.views(true) },
		"a head by nobody's commit":    func(s *scene) { s.begins(4, 4, 7) },
		"the end of a trace is lost":   func(s *scene) { s.asksAtLast(true); s.tape[0].cut = true },
		"a commit in doubt":            func(s *scene) { s.doubt(); s.begins(4, 4, 5) },
		"a heartbeat of before":        func(s *scene) { s.tape[1].head.Runner = false; s.evicts(9 * time.Second) },
		"a runner that traces nothing": func(s *scene) { s.tape[0].head.Runner = false; s.drop(s.called("beat")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.play()
			change(s)
			for _, b := range s.check().Breaches {
				if b.Rule != "step" && b.Rule != "C5" {
					t.Errorf("found %s: %s", b.Rule, b.Text)
				}
			}
		})
	}
}

// later moves a record of the first member behind another one.
func (s *scene) later(i, behind int) {
	r := s.tape[0].recs[i]
	s.tape[0].recs = slices.Insert(s.tape[0].recs, behind+1, r)
	s.drop(i)
}

// begins makes the second lease begin with a different head, whose last commit is under token, and
// makes it commit after this head.
func (s *scene) begins(n driver.WriteNo, seq driver.Seq, token driver.Token) {
	for _, r := range s.tape[1].recs {
		switch {
		case r.Lease != nil && r.Lease.Is == trace.LeaseBegun:
			r.Lease.Head = &driver.Head{Number: n, Seq: seq, Token: token}
		case r.Acks != nil:
			r.Acks.From, r.Acks.To, r.Acks.Seq = n+1, n+2, seq+2
		}
	}
}

func (s *scene) silent() {
	s.tape[1].recs = slices.DeleteFunc(s.tape[1].recs, func(r *trace.Record) bool { return r.Acks != nil })
}

// end returns the instant after the last record of the first member.
func (s *scene) end() fsm.Instant { return s.tape[0].recs[len(s.tape[0].recs)-1].At + 1 }

// adds adds a view at the end, which the member reads unchanged.
func (s *scene) adds(v *driver.View) {
	s.step(0, time.Duration(s.end()), fsm.Input{Kind: fsm.InObserved, SentAt: s.end(), View: v})
}

func (s *scene) shows(o driver.Owner) {
	s.adds(&driver.View{Shards: []driver.ShardState{{Shard: "s", Owner: o}}})
}

func (s *scene) beats(versions ...driver.Version) {
	for _, v := range versions {
		s.adds(&driver.View{Beats: []driver.Beat{{Session: session(1, 1), Version: v}}})
	}
}

// state shows the state that the second member publishes.
func (s *scene) state(n driver.UpdateNo, weight int32) {
	s.tape[1].head.Runner = false
	if n > 0 {
		s.tape[1].recs = append(s.tape[1].recs, &trace.Record{At: s.tape[1].recs[len(s.tape[1].recs)-1].At, In: &trace.Input{Kind: "wake"},
			Out: []trace.Effect{{Kind: "update", Session: session(1, 1), State: &driver.MemberState{Weight: weight, Update: n}}}})
	}
	s.adds(&driver.View{Members: []driver.Member{{Session: session(1, 1), Node: "b", TTL: ttl, MemberState: driver.MemberState{Weight: weight, Update: n}}}})
}

func (s *scene) back() {
	s.adds(&driver.View{Gone: []driver.SessionID{"z"}})
	s.adds(&driver.View{Members: []driver.Member{{Session: "z", Node: "z", TTL: ttl}}})
}

// views makes the first member read once more. The machine may or may not learn of the view.
func (s *scene) views(given bool) {
	if s.adds(&driver.View{}); !given {
		s.tape[0].recs = s.tape[0].recs[:len(s.tape[0].recs)-1]
	}
}

// asksAtLast makes the last step request a call. The call is made if made is set, and is not
// answered.
func (s *scene) asksAtLast(made bool) {
	e := trace.Effect{Kind: "read", Call: 999}
	s.tape[0].recs = append(s.tape[0].recs, &trace.Record{At: s.end(), In: &trace.Input{Kind: "wake"}, Out: []trace.Effect{e}})
	if made {
		s.note(0, s.end(), &trace.Record{Call: trace.CallOf(&e, &trace.Input{})})
	}
}

// resync makes a step request the full state. The next read is of the full state only if full is
// set.
func (s *scene) resync(full bool) {
	s.tape[0].recs = append(s.tape[0].recs, &trace.Record{At: s.end(), In: &trace.Input{Kind: "wake"}, Out: []trace.Effect{{Kind: "resync"}}})
	s.adds(&driver.View{Reset: full})
}

// overtaken makes the first member's machine request the full state while a read of changes is in
// transit to the backend.
func (s *scene) overtaken() {
	sent := s.end()
	s.step(0, time.Duration(sent+1), fsm.Input{Kind: fsm.InObserved, SentAt: sent, View: &driver.View{}})
	i := len(s.tape[0].recs) - 1
	for s.tape[0].recs[i].Call == nil {
		i--
	}
	s.tape[0].recs[i].Call.Sent = sent + 2
	s.tape[0].recs = slices.Insert(s.tape[0].recs, i, &trace.Record{At: sent + 1, In: &trace.Input{Kind: "wake"},
		Out: []trace.Effect{{Kind: "resync"}}})
}

// doubt makes the first member's lease end with a commit of unknown outcome.
func (s *scene) doubt() {
	i := s.place(func(r *trace.Record) bool { return r.Acks != nil })
	a := *s.tape[0].recs[i].Acks
	a.From, a.To, a.Doubt = 4, 4, true
	s.tape[0].recs = slices.Insert(s.tape[0].recs, i+1, &trace.Record{At: s.tape[0].recs[i].At, Acks: &a})
}

// evicted makes the second member evict the first at a given instant.
func (s *scene) evicted(at time.Duration) {
	s.evicts(at)
	for i := range s.tape[1].recs {
		if in := s.tape[1].recs[i].In; in != nil && in.Kind == "evicted" {
			s.tape[1].recs[i].At = fsm.Instant(at + time.Millisecond)
		}
	}
}

// gives makes the second member end the first member's session, and give that session a shard
// afterwards.
func (s *scene) gives() {
	s.evicts(7 * time.Second)
	f := driver.Fence{Shard: "s", Session: session(1, 1), Token: 9}
	g := driver.Fence{Shard: "s", Session: session(0, 1), Token: 11}
	s.tape[1].recs = append(s.tape[1].recs,
		&trace.Record{At: fsm.Instant(8 * time.Second), In: &trace.Input{Kind: "wake"}, Out: []trace.Effect{{Kind: "transfer", Call: 1000,
			Session: session(1, 1), Transfers: []driver.Transfer{{Fence: f, To: session(0, 1)}}}}},
		&trace.Record{At: fsm.Instant(8*time.Second + 1), In: &trace.Input{Kind: "transferred", Call: 1000, Results: []trace.Result{{Fence: &g}}}})
}
