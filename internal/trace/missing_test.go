package trace_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/trace"
)

// parts returns a tape as several files. Each file begins with the record after the end of the
// previous file. The numbers in at are the positions of the first records.
func (p *tape) parts(at ...int) []*tape {
	var all []*tape
	head, from := p.head, 0
	for n, to := range append(slices.Clone(at), len(p.recs)) {
		head.Part = n
		all = append(all, &tape{head: head, recs: p.recs[from:to]})
		for _, r := range p.recs[from:to] {
			if r.In != nil {
				head.Steps++
			}
		}
		from = to
	}
	return all
}

func (p *tape) bytes(t testing.TB) []byte {
	t.Helper()
	from, err := p.source(t, "").Open()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestMissing: missing parts of a member's files are reported as a gap, and cause no breach.
func TestMissing(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		damage func([]*tape) []*tape
		note   string // "": nothing is missing
	}{
		"nothing":              {func(p []*tape) []*tape { return p }, ""},
		"their order":          {func(p []*tape) []*tape { return []*tape{p[2], p[0], p[1]} }, ""},
		"the end of the first": {func(p []*tape) []*tape { p[0].recs, p[0].cut = p[0].recs[:len(p[0].recs)-5], true; return p }, "ends in the middle"},
		"the end of the last":  {func(p []*tape) []*tape { p[2].recs, p[2].cut = p[2].recs[:len(p[2].recs)-5], true; return p }, "ends in the middle"},
		"steps before a header": {func(p []*tape) []*tape { p[0].recs = p[0].recs[:len(p[0].recs)-5]; return p },
			"and the file before ends with step"},
		"steps before the first":      {func(p []*tape) []*tape { p[0].head.Steps = 3; return p }, "it begins with step 4"},
		"the first file":              {func(p []*tape) []*tape { return p[1:] }, "it begins with step"},
		"the one in the middle":       {func(p []*tape) []*tape { return []*tape{p[0], p[2]} }, "are missing"},
		"the last file":               {func(p []*tape) []*tape { return p[:2] }, "goes on in a file that is missing"},
		"a record, and the last file": {func(p []*tape) []*tape { p[0].recs[0] = &trace.Record{Lost: 1}; return p[:2] }, "1 records are missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := 10; at < 60; at += 7 {
				s := newScene(t)
				s.play()
				all := []trace.Source{s.tape[1].source(t, "b")}
				for n, p := range x.damage(s.tape[0].parts(at, at+20)) {
					all = append(all, p.source(t, fmt.Sprint("a", n)))
				}
				r, err := trace.Check(t.Context(), all, time.Millisecond)
				if err != nil || len(r.Breaches) > 0 || len(r.Unread) > 0 {
					t.Fatalf("at %d: %+v, %v", at, r, err)
				}
				whole := r.Replayed == r.Steps
				if x.note == "ends in the middle" && len(r.Runs[0].Notes) > 1 {
					t.Errorf("at %d: notes %q, want one gap", at, r.Runs[0].Notes)
				}
				if notes := strings.Join(r.Runs[0].Notes, "; "); !strings.Contains(notes, x.note) || (notes == "") != (x.note == "") ||
					whole != (x.note == "") && x.note != "goes on in a file that is missing" && x.note != "ends in the middle" {
					t.Errorf("at %d: of %d steps %d were compared; notes %q, want %q", at, r.Steps, r.Replayed, notes, x.note)
				}
			}
		})
	}
}

// TestDamagedFiles takes files of two members, and cuts, drops, duplicates, reorders and changes
// them at random. This causes no breach for a member that kept the rules.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	seed := rand.Uint64()
	t.Logf("%d rounds, seed %d", rounds, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	unread, gaps := 0, 0
	for round := range rounds {
		s := newScene(t)
		s.play()
		var all []trace.Source
		var did []string
		for i, p := range s.tape {
			var at []int
			for range random.IntN(4) {
				at = append(at, random.IntN(len(p.recs)+1))
			}
			slices.Sort(at)
			for n, part := range p.parts(at...) {
				text, name := part.bytes(t), fmt.Sprintf("%c%d", 'a'+i, n)
				switch k := random.IntN(12); k {
				case 0, 1, 2: // a part of it was written
					text = text[:random.IntN(len(text))]
					did = append(did, fmt.Sprintf("cut %s to %d", name, len(text)))
				case 3: // it was removed
					did = append(did, "drop "+name)
					continue
				case 4: // it was copied, once while it was written
					all = append(all, source(name+"'", text[:len(text)-random.IntN(len(text)/2)]))
					did = append(did, "double "+name)
				case 5: // a disk lost it
					text = append(text[:random.IntN(len(text))], make([]byte, 1000)...)
					did = append(did, "end in zeros "+name)
				case 6:
					text[random.IntN(len(text))] ^= 1 << random.IntN(8)
					did = append(did, "flip "+name)
				case 7:
					all = append(all, source(name+"'", text))
					did = append(did, "name twice "+name)
				}
				all = append(all, source(name, text))
			}
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		r, err := trace.Check(t.Context(), all, time.Millisecond)
		if err != nil { // if nothing can be read
			continue
		}
		for _, b := range r.Breaches {
			t.Errorf("seed %d, round %d: %q: %s: %s", seed, round, did, b.Rule, b.Text)
		}
		unread += len(r.Unread)
		for _, run := range r.Runs {
			gaps += len(run.Notes)
		}
	}
	if unread < rounds/10 || gaps < rounds/4 {
		t.Errorf("%d files were not read, %d notes: too few to tell", unread, gaps)
	}
}

// TestBadFile: if one file cannot be read, the others are still checked.
func TestBadFile(t *testing.T) {
	t.Parallel()
	flipped := zipped(t, goodHead, `{"t":1,"i":{"k":"want","s":"s"},"o":[]}`)
	flipped[len(flipped)-8] ^= 1 // in the checksum
	for name, x := range map[string]struct {
		file []byte
		says string
	}{
		"text":             {[]byte("a text that is longer than a header"), "this is no trace"},
		"empty":            {nil, "this is no trace"},
		"an older format":  {zipped(t, `{"tenure_trace":99,"namespace":"ns"}`), "check it with the version that wrote it"},
		"a bad line":       {zipped(t, goodHead, `{"t":`), "line 2"},
		"an unknown input": {zipped(t, goodHead, `{"t":1,"i":{"k":"dance"},"o":[]}`), "is no kind"},
		"a bad checksum":   {flipped, "checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, innocent := range []bool{true, false} {
				s := newScene(t)
				s.play()
				if !innocent {
					s.tape[1].later(-4 * time.Second) // while the first one leads
				}
				all := []trace.Source{source("bad", x.file), s.tape[0].source(t, "a"), s.tape[1].source(t, "b")}
				r, err := trace.Check(t.Context(), all, time.Millisecond)
				if err != nil || len(r.Unread) != 1 || !strings.HasPrefix(r.Unread[0], "bad: ") || !strings.Contains(r.Unread[0], x.says) {
					t.Fatalf("%+v, %v, want that bad is not read as it %q", r, err, x.says)
				}
				if (len(r.Breaches) == 0) != innocent || r.Leases != 2 {
					t.Errorf("innocent %v: %+v", innocent, r)
				}
			}
			bad := []trace.Source{source("bad", x.file)}
			if r, err := trace.Check(t.Context(), bad, 0); err == nil || !strings.Contains(err.Error(), x.says) {
				t.Errorf("alone: %+v, %v", r, err)
			}
		})
	}
}

// sets changes the wall clock of a member from a given instant.
func (p *tape) sets(at fsm.Instant, by time.Duration) {
	i := slices.IndexFunc(p.recs, func(r *trace.Record) bool { return r.At >= at })
	p.recs = slices.Insert(p.recs, i, &trace.Record{At: p.recs[i].At, Wall: p.head.Wall + int64(p.recs[i].At) + int64(by)})
}

// TestClockSet: if a member's wall clock was set, the check tolerates that difference in the
// member's times, and adds a note.
func TestClockSet(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		plant func(*scene)
		rule  string
		note  string
	}{
		"the leases do not overlap":     {func(s *scene) { s.tape[1].sets(6e9, time.Hour) }, "", "set by 1h0m0s"},
		"into another's lease":          {func(s *scene) { s.tape[1].sets(5e9, -4*time.Second) }, "", "set by 4s"},
		"into another's lease and back": {func(s *scene) { s.tape[1].sets(5e9, -4*time.Second); s.tape[1].sets(7e9, 0) }, "", "set by 4s"},
		"the other's, forward":          {func(s *scene) { s.tape[0].sets(1e9, 4*time.Second) }, "", "set by 4s"},
		"an overlap that is longer": {func(s *scene) { s.tape[1].later(-4 * time.Second); s.tape[1].sets(6e9, time.Second) },
			"S1", "set by 1s"},
		"an overlap that is shorter": {func(s *scene) { s.tape[1].later(-4 * time.Second); s.tape[1].sets(6e9, 2*time.Second) },
			"", "set by 2s"},
		"an eviction after silence": {func(s *scene) {
			s.tape[1].head.Runner = false
			s.evicts(7500 * time.Millisecond)
			s.tape[1].sets(7.3e9, -3200*time.Millisecond)
		}, "", "set by 3.2s"},
		"an eviction without": {func(s *scene) {
			s.tape[1].head.Runner = false
			s.evicts(2500 * time.Millisecond)
			s.tape[1].sets(7.9e9, -100*time.Millisecond)
		}, "C5 M2", "set by 100ms"},
		"the noise of two readings": {func(s *scene) { s.tape[1].sets(6e9, time.Millisecond-1) }, "", ""},
		"another member's clock": {func(s *scene) {
			s.tape[1].later(-4 * time.Second)
			s.third = s.other(5 * time.Second)
			s.third.sets(1e9, -time.Hour)
			s.third.sets(2e9, time.Hour)
		}, "S1", "set by 2h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.play()
			x.plant(s)
			all := []trace.Source{s.tape[0].source(t, "a"), s.tape[1].source(t, "b")}
			if s.third != nil {
				all = append(all, s.third.source(t, "c"))
			}
			r, err := trace.Check(t.Context(), all, time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			var rules, notes []string
			for _, b := range r.Breaches {
				if b.Rule != "step" { // evicts adds steps that the machine does not take
					rules = append(rules, b.Rule)
				}
			}
			for _, run := range r.Runs {
				notes = append(notes, run.Notes...)
			}
			if strings.Join(rules, " ") != x.rule {
				t.Errorf("found %q, want %q: %+v", rules, x.rule, r.Breaches)
			}
			if said := strings.Join(notes, "; "); !strings.Contains(said, x.note) || strings.Contains(said, "was set") != (x.note != "") {
				t.Errorf("notes %q, want %q", said, x.note)
			}
		})
	}
}

// other returns the tape of a third member. This member acts like the first member, but with tokens
// of another shard and for much longer.
func (s *scene) other(until time.Duration) *tape {
	head, err := json.Marshal(s.tape[0].head)
	if err != nil {
		s.t.Fatal(err)
	}
	rename := strings.NewReplacer(`"A1"`, `"C1"`, `"node":"a"`, `"node":"c"`, `"run":"a"`, `"run":"c"`, `"token":5`, `"token":3`, `"tok":5`, `"tok":3`)
	p := new(tape)
	if err := json.Unmarshal([]byte(rename.Replace(string(head))), &p.head); err != nil {
		s.t.Fatal(err)
	}
	p.head.Wall -= int64(until)
	for _, r := range s.tape[0].recs {
		if r.Call != nil || r.Lease != nil || r.Acks != nil { // the hashes of calls name the first one
			continue
		}
		text, err := json.Marshal(r)
		rec := new(trace.Record)
		if err = errors.Join(err, json.Unmarshal([]byte(rename.Replace(string(text))), rec)); err != nil {
			s.t.Fatal(err)
		}
		p.recs = append(p.recs, rec)
	}
	p.head.Runner = false
	return p
}

// TestLostReply: two members that lead at the same time are found even if the reply to the second
// member's claim was lost. An event that another program may have caused is not a breach.
func TestLostReply(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		answer func(s *scene, call fsm.CallID, f driver.Fence) // 5 ms before the view that shows the owner
		found  bool
	}{
		"the reply": {func(s *scene, call fsm.CallID, f driver.Fence) {
			s.acquired(call, fsm.Input{Results: []driver.AcquireResult{{Fence: f}}})
		}, true},
		"a lost reply": {func(s *scene, call fsm.CallID, _ driver.Fence) {
			s.acquired(call, fsm.Input{Err: context.DeadlineExceeded})
		}, true},
		"no reply yet": {func(*scene, fsm.CallID, driver.Fence) {}, true},
		"a refusal that names the member": {func(s *scene, call fsm.CallID, f driver.Fence) {
			s.acquired(call, fsm.Input{Results: []driver.AcquireResult{{Err: &driver.HeldError{Shard: "s", Owner: driver.Owner{Session: f.Session, Token: f.Token}}}}})
		}, true},
		"another owner meanwhile": {func(s *scene, call fsm.CallID, _ driver.Fence) {
			s.acquired(call, fsm.Input{Err: context.DeadlineExceeded})
			s.step(1, 5312*time.Millisecond, fsm.Input{Kind: fsm.InObserved, SentAt: fsm.Instant(5 * time.Second), View: &driver.View{
				Shards: []driver.ShardState{{Shard: "s", Owner: driver.Owner{Session: session(0, 1), Token: 5}}}}})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			says := driver.MemberState{Weight: 1}
			members := []driver.Member{{Session: session(0, 1), Node: "a", TTL: ttl, MemberState: says},
				{Session: session(1, 1), Node: "b", TTL: ttl, MemberState: says}}
			for i, at := range []time.Duration{time.Second, 5 * time.Second} {
				f := driver.Fence{Shard: "s", Session: session(i, 1), Token: driver.Token(5 + 4*i)}
				s.step(i, at, fsm.Input{Kind: fsm.InWant, Shard: "s"})
				all := s.step(i, at+5*time.Millisecond, fsm.Input{Kind: fsm.InObserved, SentAt: fsm.Instant(at), View: &driver.View{
					Reset: true, Members: members, Shards: []driver.ShardState{{Shard: "s", Owner: driver.Owner{Token: driver.Token(3 * i)}}}}})
				claim := call(t, fsm.EffAcquire, append(all, s.until(i, at+300*time.Millisecond)...))
				if i == 0 {
					s.step(i, at+310*time.Millisecond, fsm.Input{Kind: fsm.InAcquired, Call: claim.Call, Results: []driver.AcquireResult{{Fence: f}}})
				} else {
					x.answer(s, claim.Call, f)
				}
				head := s.head
				s.step(i, at+315*time.Millisecond, fsm.Input{Kind: fsm.InObserved, SentAt: fsm.Instant(at), View: &driver.View{
					Shards: []driver.ShardState{{Shard: "s", Owner: driver.Owner{Session: f.Session, Token: f.Token}, Head: &head}}}})
				s.until(i, at+2*time.Second)
			}
			s.tape[1].later(-3200 * time.Millisecond) // while the first member trusts its lease
			r := s.check()
			var rules []string
			for _, b := range r.Breaches {
				rules = append(rules, b.Rule)
			}
			if r.Leases != 2 || slices.Contains(rules, "S1") != x.found {
				t.Errorf("%d leases, found %q: %+v", r.Leases, rules, r)
			}
		})
	}
}

// acquired gives the second member an answer to its claim.
func (s *scene) acquired(call fsm.CallID, in fsm.Input) {
	s.t.Helper()
	in.Kind, in.Call = fsm.InAcquired, call
	s.step(1, 5310*time.Millisecond, in)
}

// TestCorrupt: if a file does not match its checksum, the check ignores the whole file, because the
// content may be wrong.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.play()
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	recs := s.tape[0].recs
	end := *recs[len(recs)-1]
	end.Wall = s.tape[0].head.Wall + int64(end.At)
	for range 3000 { // the checksum must not be in the first bytes that are read
		s.tape[0].recs = append(s.tape[0].recs, &end)
	}
	if _, err = zip.Write(s.tape[0].lines(t)); err == nil {
		err = zip.Flush()
	}
	flushed := out.Len()
	if err := errors.Join(err, zip.Close()); err != nil {
		t.Fatal(err)
	}
	text := bytes.Replace(out.Bytes(), []byte(`"k":"grant"`), []byte(`"k":"yield"`), 1)
	for _, x := range []struct {
		bytes, unread, runs int
	}{
		{len(text), 1, 1},
		{flushed, 1, 1},       // of a process that was killed after a flush
		{flushed - 100, 0, 2}, // no checksum covers the lines: they are a gap
	} {
		r, err := trace.Check(t.Context(), []trace.Source{source("a", text[:x.bytes]), s.tape[1].source(t, "b")}, time.Millisecond)
		if err != nil || len(r.Breaches) > 0 || len(r.Unread) != x.unread || len(r.Runs) != x.runs || x.runs == 2 && r.Runs[0].Steps > 0 {
			t.Errorf("%d bytes of %d: %+v, %v", x.bytes, len(text), r, err)
		}
	}
}
