package trace_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/seam"
	"github.com/tenure-go/tenure/internal/trace"
)

var hour = flag.Duration("hour", 2*time.Second, "how much of the hour TestHour looks at")

func sources(t *testing.T, dir string) []trace.Source {
	t.Helper()
	all, err := trace.FilesIn(dir)
	if err != nil || len(all) == 0 {
		t.Fatalf("no traces in %s: %v", dir, err)
	}
	return all
}

// check expects that the traces are accepted and that each step was compared.
func check(t *testing.T, dir string) *trace.Report {
	t.Helper()
	r, err := trace.Check(t.Context(), sources(t, dir), trace.DefaultClockError)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range r.Breaches {
		t.Errorf("%s: %s", b.Rule, b.Text)
	}
	for _, run := range r.Runs {
		if run.Replayed != run.Steps || run.Steps == 0 || strings.Contains(strings.Join(run.Notes, " "), "missing") {
			t.Errorf("of %s %d of %d steps were compared: %q", run.Node, run.Replayed, run.Steps, run.Notes)
		}
	}
	return r
}

// TestMembers makes three members lead shards, commit, hand over, fall silent and stop. Each step
// follows the rules, and the members' actions are consistent.
func TestMembers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := memory.New()
	commits := make(chan struct{}, 1000)
	handler := func(ctx context.Context, l *core.Lease) error {
		for ctx.Err() == nil {
			if _, err := l.Append(ctx, []byte("x")); err != nil {
				return nil //nolint:nilerr // the lease is over
			}
			select {
			case commits <- struct{}{}:
			default:
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	var runs sync.WaitGroup
	var beats atomic.Int32
	called := func(c core.Call) {
		if c.Kind == "beat" && c.Err == nil {
			beats.Add(1)
		}
	}
	start := func(node string) (*core.Elector, context.CancelFunc) {
		b, err := memory.Open(t.Context(), store, "ns", &memory.Options{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := core.NewElector(b, &core.Options{Node: node, TTL: 300 * time.Millisecond, TraceDir: dir,
			DrainBudget: time.Second, Resync: time.Second, Hooks: core.Hooks{OnCall: called}})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Contend(handler, "a", "b", "c", "_lock.d"); err != nil {
			t.Fatal(err)
		}
		// Events before Run count, because they may determine the order in which shards are
		// settled.
		if err := e.Internal(seam.Key{}).Prefer(seam.Preference{Shard: "c", First: "x"}, seam.Preference{Shard: "b", First: "x"}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		runs.Go(func() {
			if err := e.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Run of %s: %v", node, err)
			}
		})
		return e, cancel
	}
	more := func() {
		for len(commits) > 0 {
			<-commits
		}
		for range 20 {
			<-commits
		}
	}
	_, stopA := start("a")
	more()
	b, stopB := start("b")
	_, stopC := start("c")
	for v := b.View(); len(v.Members) < 3; {
		var err error
		if v, err = b.WaitView(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	for beats.Load() < 6 {
		<-commits
	}
	stopA()
	more()
	_ = b.Withdraw(t.Context(), "a")
	stopB()
	more()
	stopC()
	runs.Wait()
	r := check(t, dir)
	if len(r.Runs) != 3 || r.Leases < 6 || r.Commits < 60 {
		t.Errorf("the report has %d runs, %d leases and %d commits", len(r.Runs), r.Leases, r.Commits)
	}
	text, err := os.ReadFile(sources(t, dir)[0].Name)
	if err != nil || strings.Contains(string(text), "\"x\"") {
		t.Errorf("the trace has what was committed, or %v", err)
	}
}

// TestHour: the trace of an hour of 1,000 shards, each with 10 commits a second, takes at most 200
// MB. The test measures the part of the hour that the flag -hour specifies, beginning when all
// shards have leaders.
func TestHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testHour)
}

func testHour(t *testing.T) {
	const shards, most = 1000, 200e6
	dir := t.TempDir()
	b, err := memory.Open(t.Context(), memory.New(), "ns", nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := core.NewElector(b, &core.Options{Node: "n", TraceDir: dir, LockDir: "none", DrainBudget: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var led, commits atomic.Int64
	all := make(chan struct{})
	handler := func(ctx context.Context, l *core.Lease) error {
		if led.Add(1) == shards {
			close(all)
		}
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(rand.N(200 * time.Millisecond)): // so that not all commit at once
				if _, err := l.Append(ctx, []byte("x")); err == nil {
					commits.Add(1)
				}
			}
		}
	}
	names := make([]string, shards)
	for i := range names {
		names[i] = fmt.Sprintf("shard-%04d", i)
	}
	if err := e.Contend(handler, names...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	runs.Go(func() {
		if err := e.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	<-all
	size := func() float64 {
		_, n := files(t, dir)
		return float64(n)
	}
	first := size()
	for range 2 { // what claimed them is on the disk with the second write from now on
		was := size()
		for first = was; first == was; first = size() {
			time.Sleep(10 * time.Millisecond)
		}
	}
	before := commits.Load()
	time.Sleep(*hour)
	steady, n := size()-first, float64(commits.Load()-before)
	cancel()
	runs.Wait()
	of := first + steady*3600/hour.Seconds()
	t.Logf("%.0f commits a second: %.1f MB an hour", n/hour.Seconds(), of/1e6)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n == 0 || steady <= 0 || of > most {
		t.Errorf("%.0f commits in %v took %.0f bytes: an hour takes %.0f, want at most %.0f", n, *hour, steady, of, most)
	}
	check(t, dir)
}

// TestNoDirectory: a member that cannot write its trace does not start, and its error says what to
// change.
func TestNoDirectory(t *testing.T) {
	t.Parallel()
	b, err := memory.Open(t.Context(), memory.New(), "ns", nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := core.NewElector(b, &core.Options{Node: "n", TraceDir: filepath.Join(t.TempDir(), "none")})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "TraceDir: ") || !strings.Contains(err.Error(), "has to be a directory") {
		t.Errorf("Run: %v", err)
	}
	<-e.Internal(seam.Key{}).Done()
	if err := e.Contend(func(context.Context, *core.Lease) error { return nil }, "s"); !errors.Is(err, core.ErrStopped) {
		t.Errorf("Contend: %v", err)
	}
}
