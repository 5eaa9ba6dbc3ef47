package trace_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/trace"
)

// A tape is a trace in memory.
type tape struct {
	head trace.Header
	recs []*trace.Record
	cut  bool // its last bytes are lost
}

func (p *tape) source(t testing.TB, name string) trace.Source {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if _, err := zip.Write(p.lines(t)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(zip.Flush(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	if p.cut {
		out.Truncate(out.Len() - 8)
	}
	return source(name, out.Bytes())
}

// lines returns the header, the records and their checksum.
func (p *tape) lines(t testing.TB) (all []byte) {
	t.Helper()
	sum := crc32.NewIEEE()
	for i := range len(p.recs) + 1 {
		var v any = &p.head
		if i > 0 {
			v = p.recs[i-1]
		}
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = sum.Write(line)
		all = append(append(all, line...), '\n')
	}
	return fmt.Appendf(all, "{\"sum\":%d}\n", sum.Sum32())
}

func source(name string, text []byte) trace.Source {
	return trace.Source{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }}
}

// A scene contains two members and their traces. The first member leads a shard, commits, and gives
// the shard to the second member, which also commits.
type scene struct {
	t     testing.TB
	tape  [2]*tape
	m     [2]*fsm.Machine
	ids   [2]int
	third *tape
	head  driver.Head                     // of the shard
	asks  [2]map[fsm.CallID]*trace.Effect // without an answer yet
}

const ttl = time.Second

func newScene(t testing.TB) *scene {
	s := &scene{t: t}
	for i, node := range []string{"a", "b"} {
		cfg := fsm.Config{
			Member:     driver.Member{Node: node, TTL: ttl, MemberState: driver.MemberState{Weight: 1}},
			NewSession: func() driver.SessionID { s.ids[i]++; return session(i, s.ids[i]) },
			Interval:   ttl / 3, Margin: ttl / 10, DrainBudget: ttl, Resync: 30 * ttl, CallTimeout: ttl,
			RankDelay: 10 * time.Millisecond, BackoffMin: 100 * time.Millisecond, BackoffMax: ttl,
			WatchAll: 16, WatchFew: 3, Seed: uint64(i + 1),
		}
		s.m[i], s.tape[i] = fsm.New(cfg), &tape{head: *trace.NewHeader(driver.Info{Namespace: "ns", StoreID: "id"}, &cfg)}
		s.tape[i].head.Run, s.tape[i].head.Wall, s.tape[i].head.Runner = node, int64(time.Hour), true
		s.asks[i] = make(map[fsm.CallID]*trace.Effect)
	}
	return s
}

func session(member, n int) driver.SessionID {
	return driver.SessionID(string(rune('A'+member)) + string(rune('0'+n)))
}

// step makes a member take a step. It immediately answers all calls of that step except claims,
// releases and transfers.
func (s *scene) step(i int, at time.Duration, in fsm.Input) []fsm.Effect {
	s.t.Helper()
	out := s.m[i].Step(fsm.Instant(at), in)
	text, err := json.Marshal(trace.NewRecord(fsm.Instant(at), &in, out)) // which shares memory with them
	rec := new(trace.Record)
	if err = errors.Join(err, json.Unmarshal(text, rec)); err != nil {
		s.t.Fatal(err)
	}
	s.before(i, rec)
	s.tape[i].recs = append(s.tape[i].recs, rec)
	s.after(i, rec)
	all := append([]fsm.Effect(nil), out...)
	for _, e := range append([]fsm.Effect(nil), out...) {
		kind, ok := map[fsm.EffectKind]fsm.InputKind{fsm.EffJoin: fsm.InJoined, fsm.EffBeat: fsm.InBeaten, fsm.EffUpdate: fsm.InUpdated}[e.Kind]
		if ok {
			all = append(all, s.step(i, at+time.Millisecond, fsm.Input{Kind: kind, Call: e.Call})...)
		}
	}
	return all
}

// before records the runner's actions before a step.
func (s *scene) before(i int, rec *trace.Record) {
	in := rec.In
	switch call := s.asks[i][in.Call]; {
	case call != nil:
		s.note(i, rec.At, &trace.Record{Call: trace.CallOf(call, in)})
		delete(s.asks[i], in.Call)
	case in.View != nil:
		s.note(i, rec.At, &trace.Record{Call: trace.CallOf(&trace.Effect{}, in)})
	case in.Kind == "drained":
		s.note(i, rec.At, &trace.Record{Lease: &trace.Lease{Is: trace.LeaseJoined,
			Fence: driver.Fence{Shard: in.Shard, Session: session(i, 1), Token: in.Token}}})
	}
}

// after records the runner's actions after a step.
func (s *scene) after(i int, rec *trace.Record) {
	for n := range rec.Out {
		x := &rec.Out[n]
		if x.Call != 0 {
			s.asks[i][x.Call] = x
		}
		switch x.Kind {
		case "grant":
			s.note(i, rec.At, &trace.Record{Lease: &trace.Lease{Is: trace.LeaseBegun, Fence: *x.Fence, Until: x.Until, Head: &s.head}})
		case "revoke":
			s.note(i, rec.At, &trace.Record{Lease: &trace.Lease{Is: trace.LeaseEnded, Fence: *x.Fence}})
		}
	}
}

func (s *scene) note(i int, at fsm.Instant, r *trace.Record) {
	r.At = at
	text, err := json.Marshal(r)
	rec := new(trace.Record)
	if err = errors.Join(err, json.Unmarshal(text, rec)); err != nil {
		s.t.Fatal(err)
	}
	s.tape[i].recs = append(s.tape[i].recs, rec)
}

// commits makes a member commit, each time with one entry of the log.
func (s *scene) commits(i int, at time.Duration, f driver.Fence, n int) {
	from := s.head.Number + 1
	s.head = driver.Head{Number: s.head.Number + driver.WriteNo(n), Seq: s.head.Seq + driver.Seq(n), Token: f.Token}
	s.note(i, fsm.Instant(at), &trace.Record{Acks: &trace.Acks{Fence: f, From: from, To: s.head.Number, Entries: driver.Seq(n), Seq: s.head.Seq,
		Sent: fsm.Instant(at)}})
}

// until makes a member wake until an instant.
func (s *scene) until(i int, at time.Duration) (all []fsm.Effect) {
	for wake := s.m[i].WakeAt(); wake <= fsm.Instant(at); wake = s.m[i].WakeAt() {
		all = append(all, s.step(i, time.Duration(wake), fsm.Input{Kind: fsm.InWake})...)
	}
	return all
}

func call(t testing.TB, kind fsm.EffectKind, all []fsm.Effect) fsm.Effect {
	t.Helper()
	for _, e := range all {
		if e.Kind == kind {
			return e
		}
	}
	t.Fatalf("no effect of kind %d in %+v", kind, all)
	return fsm.Effect{}
}

// play makes the first member lead "s" under token 5, commit three times and release the shard. The
// second member then leads "s" under token 9 and commits twice.
func (s *scene) play() {
	says := driver.MemberState{Weight: 1}
	members := []driver.Member{{Session: session(0, 1), Node: "a", TTL: ttl, MemberState: says}, {Session: session(1, 1), Node: "b", TTL: ttl, MemberState: says}}
	lead := func(i int, at time.Duration, seen driver.Owner, token driver.Token, n int) {
		s.step(i, at, fsm.Input{Kind: fsm.InWant, Shard: "s"})
		all := s.step(i, at+5*time.Millisecond, fsm.Input{Kind: fsm.InObserved, SentAt: fsm.Instant(at), View: &driver.View{Reset: true,
			Members: members, Shards: []driver.ShardState{{Shard: "s", Owner: seen}}}})
		all = append(all, s.until(i, at+300*time.Millisecond)...)
		claim := call(s.t, fsm.EffAcquire, all)
		f := driver.Fence{Shard: "s", Session: session(i, 1), Token: token}
		s.step(i, at+310*time.Millisecond, fsm.Input{Kind: fsm.InAcquired, Call: claim.Call, Results: []driver.AcquireResult{{Fence: f}}})
		s.commits(i, at+320*time.Millisecond, f, n)
		s.until(i, at+2*time.Second)
		all = s.step(i, at+2*time.Second, fsm.Input{Kind: fsm.InUnwant, Shard: "s"})
		_ = all
		all = s.step(i, at+2*time.Second+time.Millisecond, fsm.Input{Kind: fsm.InDrained, Shard: "s", Token: token})
		for _, e := range all {
			switch e.Kind {
			case fsm.EffRelease:
				s.step(i, at+2*time.Second+5*time.Millisecond, fsm.Input{Kind: fsm.InReleased, Call: e.Call})
			case fsm.EffTransfer:
				s.step(i, at+2*time.Second+5*time.Millisecond, fsm.Input{Kind: fsm.InTransferred, Call: e.Call,
					Results: []driver.AcquireResult{{Err: &driver.FencedError{}}}})
			}
		}
		s.until(i, at+3*time.Second)
	}
	lead(0, time.Second, driver.Owner{}, 5, 3)
	lead(1, 5*time.Second, driver.Owner{Token: 5}, 9, 2)
	s.ends()
}

// ends records that both traces are complete.
func (s *scene) ends() {
	for _, p := range s.tape {
		p.recs = append(p.recs, &trace.Record{At: p.recs[len(p.recs)-1].At, End: true})
	}
}

func (s *scene) check() *trace.Report {
	s.t.Helper()
	r, err := trace.Check(s.t.Context(), []trace.Source{s.tape[0].source(s.t, "a"), s.tape[1].source(s.t, "b")}, time.Millisecond)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// find returns the first record whose step has an effect of a kind, and the record's position.
func (p *tape) find(t testing.TB, kind string) (*trace.Record, int) {
	t.Helper()
	for _, r := range p.recs {
		for i := range r.Out {
			if r.Out[i].Kind == kind {
				return r, i
			}
		}
	}
	t.Fatalf("the trace has no %q", kind)
	return nil, 0
}

// given returns the place of the first member's first step with an input of a kind.
func (s *scene) given(kind string) int {
	s.t.Helper()
	return s.place(func(r *trace.Record) bool { return r.In != nil && r.In.Kind == kind })
}

// called returns the position of the first member's first call of a kind. told returns the position
// of the first event of a kind that the first member's application saw.
func (s *scene) called(kind string) int {
	s.t.Helper()
	return s.place(func(r *trace.Record) bool { return r.Call != nil && r.Call.Kind == kind })
}

func (s *scene) told(is string) int {
	s.t.Helper()
	return s.place(func(r *trace.Record) bool { return r.Lease != nil && r.Lease.Is == is })
}

func (s *scene) place(is func(*trace.Record) bool) int {
	s.t.Helper()
	i := slices.IndexFunc(s.tape[0].recs, is)
	if i < 0 {
		s.t.Fatal("the trace has no such record")
	}
	return i
}

func (s *scene) drop(i int) { s.tape[0].recs = slices.Delete(s.tape[0].recs, i, i+1) }

// again repeats a record of the first member.
func (s *scene) again(i int) { s.tape[0].recs = slices.Insert(s.tape[0].recs, i, s.tape[0].recs[i]) }

func (p *tape) acks(t testing.TB) *trace.Acks {
	t.Helper()
	for _, r := range p.recs {
		if r.Acks != nil {
			return r.Acks
		}
	}
	t.Fatal("the trace has no commits")
	return nil
}

// later shifts the wall clock of a whole tape.
func (p *tape) later(by time.Duration) { p.head.Wall += int64(by) }

// TestPlanted: the check finds each planted fault in a trace, and names the rule that the fault
// breaks.
func TestPlanted(t *testing.T) {
	t.Parallel()
	drop := func(kind string) func(*scene) {
		return func(s *scene) {
			r, i := s.tape[0].find(s.t, kind)
			r.Out = append(r.Out[:i], r.Out[i+1:]...)
		}
	}
	change := func(kind string, f func(*trace.Effect)) func(*scene) {
		return func(s *scene) {
			r, i := s.tape[0].find(s.t, kind)
			f(&r.Out[i])
		}
	}
	for name, x := range map[string]struct {
		plant func(*scene)
		rule  string
	}{
		"nothing":                         {func(*scene) {}, ""},
		"a heartbeat is not sent":         {drop("beat"), "step"},
		"a lease is not revoked":          {drop("revoke"), "step"},
		"a lease is not reported":         {drop("grant"), "step"},
		"a claim is not sent":             {drop("acquire"), "step"},
		"a shard is not released":         {drop("release"), "step"},
		"trust lasts longer":              {change("extend", func(e *trace.Effect) { e.Until++ }), "step"},
		"a lease is trusted longer":       {change("grant", func(e *trace.Effect) { e.Until += fsm.Instant(ttl) }), "step"},
		"a token that nobody granted":     {change("grant", func(e *trace.Effect) { e.Fence.Token++ }), "step"},
		"another shard is claimed":        {change("acquire", func(e *trace.Effect) { e.Claims[0].Shard = "x" }), "step"},
		"a claim preempts":                {change("acquire", func(e *trace.Effect) { e.Claims[0].Preempt = true }), "step"},
		"a step happened twice":           {func(s *scene) { r, _ := s.tape[0].find(s.t, "grant"); s.tape[0].recs = append(s.tape[0].recs, r) }, "step"},
		"a step is missing":               {func(s *scene) { s.drop(s.given("beaten")) }, "step"},
		"the leases overlap":              {func(s *scene) { s.tape[1].later(-4 * time.Second) }, "S1"},
		"the leases overlap for a moment": {func(s *scene) { s.tape[1].later(-2320 * time.Millisecond) }, "S1"},
		"the token is the former one":     {func(s *scene) { s.token(5) }, "S2"},
		"the token is below":              {func(s *scene) { s.token(4) }, "S2"},
		"the store grants what was seen":  {func(s *scene) { s.token(4) }, "A2"},
		"a commit is acknowledged twice":  {func(s *scene) { s.tape[1].acks(s.t).From = 3 }, "S3"},
		"a former leader's commit": {func(s *scene) {
			s.tape[0].head.Runner, s.tape[1].head.Runner = false, false
			s.tape[0].acks(s.t).From, s.tape[0].acks(s.t).To = 6, 6
		}, "S3"},
		"a former leader's commits":   {func(s *scene) { s.tape[0].acks(s.t).To = 9 }, "S3"},
		"a session id is used again":  {func(s *scene) { r, i := s.tape[1].find(s.t, "join"); r.Out[i].Member.Session = session(0, 1) }, "C3"},
		"an eviction without silence": {func(s *scene) { s.evicts(2500 * time.Millisecond) }, "C5"},
		"an eviction after silence":   {func(s *scene) { s.evicts(7500 * time.Millisecond) }, "step"},
		"an eviction that a join overtakes": {func(s *scene) {
			s.evicts(7500 * time.Millisecond)
			at := len(s.tape[1].recs) - 1 // the answer
			asks, answer := s.tape[1].recs[at-1], s.tape[1].recs[at]
			asks.Out = append(asks.Out, trace.Effect{Kind: "join", Call: 998,
				Member: &driver.Member{Session: session(1, 2), Node: "b", TTL: ttl}})
			answer.At++
			s.tape[1].recs = append(s.tape[1].recs[:at],
				&trace.Record{At: answer.At - 1, In: &trace.Input{Kind: "joined", Call: 998}}, answer)
		}, "step"},
		"an eviction after the answer of a join that was given up": {func(s *scene) {
			for n, call := range []fsm.CallID{996, 997} {
				s.tape[1].recs = append(s.tape[1].recs, &trace.Record{At: fsm.Instant(6*time.Second) + fsm.Instant(n), In: &trace.Input{Kind: "wake"},
					Out: []trace.Effect{{Kind: "join", Call: call, Member: &driver.Member{Session: session(1, 2+n), Node: "b", TTL: ttl}}}})
			}
			s.tape[1].recs = append(s.tape[1].recs, &trace.Record{At: fsm.Instant(7 * time.Second), In: &trace.Input{Kind: "joined", Call: 996}})
			s.evicts(7500 * time.Millisecond)
		}, "step"},
		"an eviction after a join":      {func(s *scene) { s.evicts(5500 * time.Millisecond) }, "C5"},
		"an eviction without an answer": {func(s *scene) { s.evicts(9500 * time.Millisecond) }, "C5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.play()
			x.plant(s)
			r := s.check()
			var rules []string
			for _, b := range r.Breaches {
				rules = append(rules, b.Rule)
			}
			if x.rule == "" && len(rules) > 0 || x.rule != "" && !strings.Contains(strings.Join(rules, " "), x.rule) {
				t.Errorf("found %v, want %q: %+v", rules, x.rule, r.Breaches)
			}
			if x.rule == "step" && slices.Contains(rules, "C5") {
				t.Errorf("found %+v", r.Breaches)
			}
			if x.rule != "C5" && slices.Contains(rules, "C5") {
				t.Errorf("found C5 as well: %+v", r.Breaches)
			}
			if x.rule == "" && (r.Replayed != r.Steps || r.Leases != 2 || r.Commits != 5) {
				t.Errorf("%d of %d steps were compared, %d leases, %d commits", r.Replayed, r.Steps, r.Leases, r.Commits)
			}
			var svg bytes.Buffer
			if err := r.Diagram(&svg); err != nil || strings.HasPrefix(svg.String(), "<svg") == (x.rule == "") {
				t.Errorf("the diagram is %q, %v", svg.String(), err)
			}
		})
	}
}

// TestGap: if records are missing, it is unknown how long a lease was trusted.
func TestGap(t *testing.T) {
	t.Parallel()
	for _, missing := range []bool{false, true} {
		s := newScene(t)
		s.play()
		s.tape[1].later(-1500 * time.Millisecond) // while the first member still runs
		i := slices.IndexFunc(s.tape[0].recs, func(r *trace.Record) bool {
			return slices.ContainsFunc(r.Out, func(e trace.Effect) bool { return e.Kind == "revoke" })
		})
		if missing {
			s.tape[0].recs[i] = &trace.Record{At: s.tape[0].recs[i].At, Lost: 1}
		} else {
			s.tape[0].recs[i].Out = nil
		}
		r := s.check()
		if found := slices.ContainsFunc(r.Breaches, func(b trace.Breach) bool { return b.Rule == "S1" }); found == missing {
			t.Errorf("records are missing: %v; found %+v", missing, r.Breaches)
		}
	}
}

// TestJump: if a step is centuries later or earlier, the check does not advance one tick at a time.
func TestJump(t *testing.T) {
	t.Parallel()
	for _, at := range []fsm.Instant{fsm.Never, fsm.Never - 1, 1 << 62, -1 << 63, -1} {
		s := newScene(t)
		s.play()
		r := s.tape[0].recs
		i := slices.IndexFunc(r, func(r *trace.Record) bool { return r.Acks != nil }) // while a lease is held
		s.tape[0].recs = slices.Insert(r, i, &trace.Record{At: at, In: &trace.Input{Kind: "wake"}})
		s.check() // it would take centuries
	}
}

// token replaces the second lease's token everywhere.
func (s *scene) token(to driver.Token) {
	for _, r := range s.tape[1].recs {
		text, err := json.Marshal(r)
		if err != nil {
			s.t.Fatal(err)
		}
		*r = trace.Record{}
		for _, key := range []string{`"token"`, `"tok"`} {
			text = bytes.ReplaceAll(text, []byte(key+`:9`), append([]byte(key+`:`), byte('0'+to)))
		}
		if err := json.Unmarshal(text, r); err != nil {
			s.t.Fatal(err)
		}
	}
}

// evicts makes the second member evict the first at an instant.
func (s *scene) evicts(at time.Duration) {
	s.tape[1].recs = append(s.tape[1].recs,
		&trace.Record{At: fsm.Instant(at), In: &trace.Input{Kind: "wake"}, Out: []trace.Effect{{Kind: "evict", Call: 999, Session: session(1, 1),
			Suspects: []driver.Suspect{{Session: session(0, 1), Version: 3}}}}},
		&trace.Record{At: fsm.Instant(at + time.Millisecond), In: &trace.Input{Kind: "evicted", Call: 999, Evictions: []trace.Eviction{{Evicted: true}}}})
}
