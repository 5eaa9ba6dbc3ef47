package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	. "github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/history/linearizable"
)

// run makes several members contend for one shard of a memory store until each has had its turns.
// The function recorder returns the Recorder of the member with a name.
func run(t *testing.T, recorder func(name string) *Recorder) {
	t.Helper()
	const members, turns = 3, 4
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	store := memory.New()
	var wg sync.WaitGroup
	for i := range members {
		name := fmt.Sprint("m", i)
		inner, err := memory.Open(ctx, store, "test", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := recorder(name)
		b := Wrap(inner, r)
		defer b.Close()
		s, err := b.Join(ctx, driver.Member{Session: driver.SessionID(name), Node: name, TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := contend(ctx, b, s, r, turns); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
}

func contend(ctx context.Context, b driver.Backend, s driver.Session, r *Recorder, turns int) error {
	seen := driver.Owner{}
	for nonce := driver.Nonce(1); turns > 0; {
		res, err := s.Acquire(ctx, []driver.Claim{{Shard: "s", Seen: seen}})
		if err != nil {
			return err
		}
		if h, ok := errors.AsType[*driver.HeldError](res[0].Err); ok {
			seen = h.Owner
			continue
		}
		if res[0].Err != nil {
			return res[0].Err
		}
		turns--
		f := res[0].Fence
		r.Trust(f, Now()+Instant(time.Minute))
		for i := range driver.WriteNo(3) {
			nonce++
			_, err := s.Commit(ctx, []driver.Write{{Fence: f, Number: res[0].Head.Number + 1 + i%2, Nonce: nonce,
				Ops: []driver.Op{{Kind: driver.OpAppend, Value: fmt.Appendf(nil, "%s %d", s.ID(), nonce)}}}})
			if err != nil {
				return err
			}
		}
		if _, err := b.ReadLog(ctx, "s", 0, 100); err != nil {
			return err
		}
		r.Distrust(f)
		if err := s.Release(ctx, []driver.Fence{f}); err != nil {
			return err
		}
		seen = driver.Owner{Token: f.Token}
	}
	return s.Close(ctx)
}

func TestWrapInMemory(t *testing.T) {
	t.Parallel()
	r, err := NewRecorder("all")
	if err != nil {
		t.Fatal(err)
	}
	run(t, func(string) *Recorder { return r })
	h := r.History()
	// One process holds all trust here, so only the files below can show overlap.
	for _, f := range both(h, &Options{MinGrants: 12, MinCommits: 24}) {
		t.Errorf("got %v, want nothing found", f)
	}
	if n := h.Count(Commit, Refused); n != 12 {
		t.Errorf("%d commits were refused, want the 12 with a number that was used", n)
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestFilesOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var paths []string
	var recorders []*Recorder
	run(t, func(name string) *Recorder {
		paths = append(paths, filepath.Join(dir, name+".jsonl"))
		r, err := Create(paths[len(paths)-1], name)
		if err != nil {
			t.Fatal(err)
		}
		recorders = append(recorders, r)
		return r
	})
	for _, r := range recorders {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Load(paths...)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range both(h, &Options{MinGrants: 12, MinCommits: 24}) {
		t.Errorf("got %v, want nothing found", f)
	}
	if n := h.Count(Trust, OK); n != 12 {
		t.Errorf("%d notes of trust, want 12", n)
	}
}

// TestKilledProcess: a call without a return has an unknown outcome, and an incomplete line is
// ignored.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "killed.jsonl")
	r, err := Create(path, "killed")
	if err != nil {
		t.Fatal(err)
	}
	done := r.Call(Operation{Kind: Acquire, Shard: "s", Session: "a"})
	done.Outcome, done.Granted = OK, fence("a", 3)
	r.Return(done)
	r.Call(Operation{Kind: Commit, Shard: "s", Fence: fence("a", 3), Number: 1, Nonce: 7})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"process":"killed","id":3,"ki`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	h, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Operations) != 2 || h.Operations[0].Outcome != OK || h.Operations[0].Return < h.Operations[0].Call ||
		h.Operations[1].Outcome != "" || h.Operations[1].Nonce != 7 {
		t.Errorf("got %+v, want the grant, and the commit without an outcome", h.Operations)
	}
	if _, err := Create(path, "killed"); err == nil {
		t.Error("a file that exists was taken for a new one")
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	const head = `{"process":"a","clock":"c"}` + "\n"
	for _, c := range []struct{ name, file, want string }{
		{"nothing", "", "empty"},
		{"no header", `{"process":"a","id":1,"kind":"read","call":1}` + "\n", "line 1"},
		{"no clock", `{"process":"a","clock":""}` + "\n", "no clock"},
		{"an unknown field", head + `{"process":"a","id":1,"kind":"read","call":1,"what":1}` + "\n", "line 2"},
		{"no JSON", head + "nonsense\n", "line 2"},
		{"another process", head + `{"process":"b","id":1,"kind":"read","call":1}` + "\n", `of process "b" in the file of "a"`},
		{"a return before the call", head + `{"process":"a","id":1,"kind":"read","call":2,"return":1}` + "\n", "before it was called"},
		{"a shard that cannot be", head + `{"process":"a","id":1,"kind":"read","call":1,"shard":"../up"}` + "\n", "invalid"},
	} {
		path := filepath.Join(t.TempDir(), "h.jsonl")
		if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	dir := t.TempDir()
	for name, line := range map[string]string{"a": head, "b": `{"process":"b","clock":"other"}` + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err == nil ||
		!strings.Contains(err.Error(), "another host") {
		t.Errorf("two clocks: error %v, want one with %q", err, "another host")
	}
	if _, err := Load(filepath.Join(dir, "a"), filepath.Join(dir, "a")); err == nil ||
		!strings.Contains(err.Error(), "both of process") {
		t.Errorf("one process twice: error %v, want one with %q", err, "both of process")
	}
}

func TestReturnOfAStranger(t *testing.T) {
	t.Parallel()
	r, err := NewRecorder("a")
	if err != nil {
		t.Fatal(err)
	}
	r.Return(Operation{Process: "b", ID: 1})
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "return the operation of Call") {
		t.Errorf("Close = %v, want the mistake", err)
	}
	if _, err := NewRecorder(""); err == nil {
		t.Error("a recorder without a name was made")
	}
}

func TestSave(t *testing.T) {
	t.Parallel()
	h := good()
	h.Operations[read2].Head = head(2, 3, 12, 5)
	h.Operations[read2].Entries = nil
	found := both(h, nil)
	const replay = "go test ./internal/proof/system -run Chaos -args -seed 7"
	path, err := Save(t.TempDir(), "chaos", replay, h, found)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(path, "findings.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"replay: " + replay + "\n", "F1 log-linearizable: shard \"s\"", "L2 log-is-a-prefix",
		"[290, 310] a.2#23 read after 3"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("findings.txt is %s\nwant %q in it", text, want)
		}
	}
	back, err := Load(filepath.Join(path, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if want := Merge(h); !reflect.DeepEqual(back, want) {
		t.Errorf("loaded %+v, want the saved %+v", back, want)
	}
	if err := linearizable.Draw(path, h, found); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(path, "log-linearizable-s.html"))
	if err != nil || !bytes.Contains(page, []byte("<html")) || !bytes.Contains(page, []byte("a.2#23 read after 3")) {
		t.Errorf("the picture has %d bytes and error %v, want a page with the read", len(page), err)
	}
	if _, err := Save(t.TempDir(), "chaos", "two\nlines", h, found); err == nil {
		t.Error("a replay of two lines was taken")
	}
}

// TestUndecided gives porcupine a history that takes too long, and expects an error.
func TestUndecided(t *testing.T) {
	t.Parallel()
	var ops []Operation
	for i := range 40 {
		ops = append(ops, Operation{Process: "a", ID: int64(i + 1), Kind: Acquire, Shard: "s", Call: 1, Return: 100,
			Outcome: Unknown,
			Session: driver.SessionID(fmt.Sprint("s", i)), Seen: driver.Owner{}, Preempt: true})
		ops = append(ops, Operation{Process: "b", ID: int64(i + 1), Kind: Transfer, Shard: "s", Call: 1, Return: 100,
			Outcome: Unknown,
			Fence:   fence(driver.SessionID(fmt.Sprint("s", i)), driver.Token(i+2)),
			Target:  driver.SessionID(fmt.Sprint("s", (i+1)%40))})
	}
	ops = append(ops, Operation{Process: "c", ID: 1, Kind: Commit, Shard: "s", Call: 101, Return: 102, Outcome: OK,
		Fence: fence("nobody", 1), Number: 1})
	found := linearizable.Check(&History{Operations: ops}, 50*time.Millisecond)
	wantFinding(t, found, linearizable.Lease, linearizable.RuleUndecided,
		"did not decide its 81 operations (leases) within 50ms")
	wantFinding(t, found, linearizable.Log, linearizable.RuleUndecided, "raise the timeout")
}

func TestClock(t *testing.T) {
	t.Parallel()
	last := Now()
	if last <= 0 {
		t.Fatalf("the clock shows %d, want more than 0", last)
	}
	for range 1000 {
		now := Now()
		if now < last {
			t.Fatalf("the clock went back from %d to %d", last, now)
		}
		last = now
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, c := range []struct {
		name string
		make func() (*Recorder, error)
	}{
		{"memory", func() (*Recorder, error) { return NewRecorder("a") }},
		{"file", func() (*Recorder, error) { return Create(filepath.Join(b.TempDir(), "h"), "a") }},
	} {
		b.Run(c.name, func(b *testing.B) {
			r, err := c.make()
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				op := r.Call(Operation{Kind: Commit, Shard: "s", Fence: fence("a", 1), Number: 1, Nonce: 1})
				op.Outcome = OK
				r.Return(op)
			}
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
