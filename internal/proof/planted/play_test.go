package planted_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/internal/seam"
	"github.com/tenure-go/tenure/internal/trace"
	"github.com/tenure-go/tenure/tenuretest"
)

var (
	tracesFlag = flag.String("traces", "", "the directory into which TestPlay writes the traces of its seeds; default: a temporary one")
	playsFlag  = flag.Int("plays", 12, "how many seeds TestPlay plays")
)

const ttl = time.Second

// faults omits Suspend. A suspended process's goroutines continue in the bubble. They would write
// the process's clock into the trace at instants at which a real process writes nothing.
const faults = tenuretest.AllFaults &^ tenuretest.Suspend

// of returns the directory of a seed.
func of(dir string, seed uint64) string { return filepath.Join(dir, fmt.Sprintf("seed-%d", seed)) }

// TestPlay runs members of three processes that lead shards under faults, in virtual time, and
// checks their traces. With -traces, the caller checks them.
func TestPlay(t *testing.T) {
	dir, check, plays := *tracesFlag, false, share.Of(t, "plays", *playsFlag, 3)
	if dir == "" {
		dir, check = t.TempDir(), true
	}
	tenuretest.Run(t, &tenuretest.Options{Seeds: plays, TTL: ttl, Length: 25 * ttl, Faults: faults}, func(w *tenuretest.World) {
		if err := os.Mkdir(of(dir, w.Seed()), 0o700); err != nil {
			w.Fatalf("%v", err)
		}
		play(w, of(dir, w.Seed()))
	})
	if !check {
		return
	}
	var sum trace.Report
	for seed := range uint64(plays) {
		if _, err := os.Stat(of(dir, seed+1)); err != nil {
			continue // -run selects others
		}
		r := accepted(t, of(dir, seed+1))
		for _, b := range r.Breaches {
			t.Errorf("seed %d: %s: %s", seed+1, b.Rule, b.Text)
		}
		sum.Steps, sum.Leases, sum.Evictions, sum.Commits = sum.Steps+r.Steps, sum.Leases+r.Leases, sum.Evictions+r.Evictions, sum.Commits+r.Commits
		if r.Replayed != r.Steps {
			t.Errorf("seed %d: %d of %d steps were compared", seed+1, r.Replayed, r.Steps)
		}
	}
	if sum.Steps == 0 || sum.Leases == 0 || sum.Commits == 0 {
		t.Error("nothing was played")
	}
	t.Logf("%d steps, %d leases, %d evictions, %d commits", sum.Steps, sum.Leases, sum.Evictions, sum.Commits)
}

// accepted checks the traces below a directory, which has one for each process.
func accepted(t *testing.T, dir string) *trace.Report {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"+trace.Suffix))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no traces: %v", dir, err)
	}
	var all []trace.Source
	for _, name := range files {
		all = append(all, trace.File(name))
	}
	r, err := trace.Check(t.Context(), all, time.Millisecond)
	if err != nil || len(r.Unread) > 0 {
		t.Fatalf("%v, %q", err, r.Unread)
	}
	return r
}

// play is the scenario. Three members contend for shards and a lock, commit, change their own
// state, hand over and withdraw, while the world plays faults.
func play(w *tenuretest.World, dir string) {
	w.Start(3, func(ctx context.Context, m *tenuretest.Member) error {
		o := m.Options()
		traces, err := os.MkdirTemp(dir, m.Node()+"-")
		if err != nil {
			return err
		}
		defer crash(ctx, traces)()
		o.TraceDir, o.Resync = traces, 4*ttl
		e, err := core.NewElector(newWire(m.Backend()), o)
		if err != nil {
			return err
		}
		if err := e.Contend(work, "a", "b", "c", "_lock.d"); err != nil {
			return err
		}
		moved := make(chan struct{})
		go func() { defer close(moved); move(ctx, m, e) }()
		_ = e.Run(ctx) // the scenario does not fail if a fault ends a member
		<-moved
		<-ctx.Done()
		return nil
	})
	w.Play()
	time.Sleep(3 * ttl)
	w.Stop()
}

// crash ends a process's traces at its crash. The process continues, but its traces are ignored.
// The caller calls the returned function when the process has ended.
func crash(ctx context.Context, dir string) (end func()) {
	sizes := make(map[string]int64)
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), tenuretest.ErrCrashed) {
			return
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*")) // the pattern is valid
		for _, name := range files {
			if st, err := os.Stat(name); err == nil {
				sizes[name] = st.Size()
			}
		}
	}()
	return func() {
		<-seen
		for name, size := range sizes {
			_ = os.Truncate(name, size) // a file that is not cut fails the check
		}
	}
}

// work commits under a lease from two goroutines until it must stop, and commits once more at the
// end.
func work(ctx context.Context, l *core.Lease) error {
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { commit(ctx, l) })
	}
	both.Wait()
	_, _ = l.Commit(l.Context(), core.Put("last", []byte("z")))
	return nil
}

func commit(ctx context.Context, l *core.Lease) {
	every := ttl / 30
	if l.Shard() == "c" { // a former lease's late commit must find the former head
		every = ttl
		select {
		case <-time.After(2 * ttl):
		case <-ctx.Done():
		}
	}
	for n := 0; ctx.Err() == nil; n++ {
		ops := []core.Op{core.Append([]byte("x"))}
		if n%3 == 0 {
			ops = append(ops, core.Put("k", []byte("y")))
		}
		if _, err := l.Commit(l.Context(), ops...); err != nil {
			break
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
		}
	}
}

// move makes a member withdraw and contend, hand over, and change its state, by its own seed.
func move(ctx context.Context, m *tenuretest.Member, e *core.Elector) {
	shards := []string{"a", "b", "c", "_lock.d"}
	for n := uint64(0); ctx.Err() == nil; n++ {
		x := m.Options().Seed // follows from the instant
		select {
		case <-time.After(ttl/2 + time.Duration(x%uint64(ttl))):
		case <-e.Internal(seam.Key{}).Done():
			return
		case <-ctx.Done():
			return
		}
		shard := shards[x/7%4]
		call, cancel := context.WithTimeout(ctx, 4*ttl)
		switch x / 31 % 4 {
		case 0:
			_ = e.Withdraw(call, shard)
		case 1:
			_ = e.HandOver(call, other(e, x), shard)
		case 2:
			_ = e.Update(call, func(st *driver.MemberState) { st.Priority = int32(x / 101 % 3) })
		default:
			_ = e.Internal(seam.Key{}).Prefer(seam.Preference{Shard: shard, First: other(e, x)})
		}
		cancel()
		if err := e.Contend(work, shard); err != nil && !errors.Is(err, core.ErrContended) {
			return
		}
	}
}

// other returns another live member.
func other(e *core.Elector, x uint64) core.SessionID {
	members := e.View().Members
	if len(members) == 0 {
		return "none"
	}
	return members[x/13%uint64(len(members))].Session
}
