// Package stores_test takes locks on real stores, in real processes that are killed, stopped and
// cut off. Under the locks, the processes write to a resource that compares tokens.
package stores_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/fleet"
	"github.com/tenure-go/tenure/lock"
)

var (
	seeds  = flag.Int("seeds", 2, "how many runs there are on each store")
	first  = flag.Uint64("first", 1, "the first of the seeds")
	faults = flag.Int("faults", 6, "how many faults strike in a run")
)

const (
	members = 3
	workers = 6 // of each process
	names   = 4
)

func name(i int) string { return fmt.Sprintf("account-%d", i) }

func TestMain(m *testing.M) { os.Exit(fleet.Main(m, child)) }

type setting struct {
	Resource string // its address
	Seed     uint64
}

// child is a process that repeatedly locks a name, makes a guarded write under the lock, and
// unlocks the name.
func child(ctx context.Context, b core.Backend, o *core.Options, set setting) error {
	locks, err := lock.New(b, o)
	if err != nil {
		return err
	}
	w := &worker{setting: set, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}}
	failed := make(chan error, workers)
	var group sync.WaitGroup
	for i := range uint64(workers) {
		group.Go(func() {
			if err := w.work(ctx, locks, rand.New(rand.NewPCG(set.Seed, i))); err != nil {
				failed <- err
			}
		})
	}
	group.Wait()
	close(failed)
	return errors.Join(<-failed, locks.Close())
}

type worker struct {
	setting
	client *http.Client
}

func (w *worker) work(ctx context.Context, locks *lock.Locks, rng *rand.Rand) error {
	for ctx.Err() == nil {
		take := locks.Lock
		if rng.IntN(4) == 0 {
			take = locks.TryLock
		}
		k, err := take(ctx, name(rng.IntN(names)))
		switch {
		case errors.Is(err, lock.ErrHeld):
			time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
			continue
		case ctx.Err() != nil && err != nil:
			return nil
		case err != nil:
			return err
		}
		w.update(k)
		unlock, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err = k.Unlock(unlock)
		cancel()
		if err != nil && !errors.Is(err, core.ErrLost) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
	}
	return nil
}

// update is a guarded read-modify-write that does not check the lock after it has begun, so only
// the fence protects the counter. A failed update is not repeated.
func (w *worker) update(k *lock.Lock) {
	if k.Err() != nil {
		return
	}
	text, err := w.ask("/read", k, 0)
	if err != nil {
		return
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err) // the resource answers with a number
	}
	_, _ = w.ask("/write", k, value+1)
}

func (w *worker) ask(path string, k *lock.Lock, value int) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*ample.Time) // longer than any process is stopped
	defer cancel()
	q := url.Values{"name": {k.Name()}, "token": {fmt.Sprint(k.Token())}, "pid": {strconv.Itoa(os.Getpid())}, "value": {strconv.Itoa(value)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.Resource+path+"?"+q.Encode(), nil)
	if err != nil {
		return "", err
	}
	res, err := w.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(body), err
}

// fileLimit is how long the test waits for another holder if the previous holder may have been
// stopped while it held the file.
const fileLimit = 6 * time.Second

type fault string

const (
	stopInWrite fault = "stopped in a write" // the holder, between its read and its write, until another holder has written
	killInWrite fault = "killed in a write"  // the write arrives after another holder has written
	stopPast    fault = "stopped"
	kill        fault = "killed"
	leave       fault = "asked to stop"
	cut         fault = "cut off"
	loseReplies fault = "replies lost"
)

// schedule chooses the faults of a run. In each run, a holder is stopped in the middle of a write,
// and the seed selects one of three other faults.
func schedule(rng *rand.Rand, n int, seed uint64, served bool) []fault {
	out := []fault{stopInWrite, killInWrite, []fault{stopPast, kill, leave}[seed%3]}
	deck := []fault{stopInWrite, stopPast, kill, leave}
	if served {
		out = append(out, cut, loseReplies)
		deck = append(deck, cut, loseReplies)
	}
	for len(out) < n {
		out = append(out, deck[rng.IntN(len(deck))])
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

type chaos struct {
	*fleet.Fleet
	r *resource
}

func (f *chaos) start() {
	f.Helper()
	f.Start(setting{f.r.URL, f.Rand.Uint64()})
}

type total struct {
	mu                             sync.Mutex
	runs, damaged, writes, refused int
	disordered, lost               int
	struck                         map[string]int
}

func (s *total) String() string {
	return fmt.Sprintf("%d runs, %d writes accepted, %d refused, %d out of order, %d updates lost, damage in %d runs; %v",
		s.runs, s.writes, s.refused, s.disordered, s.lost, s.damaged, s.struck)
}

// TestLocks takes locks for guarded writes while their holders are killed, stopped in the middle of
// a write, and cut off from the store. All accepted writes are in the order of their tokens, and no
// write overwrites a value that its holder has not read. To repeat a run, except for the
// scheduler's choices, use -first and -seeds=1.
func TestLocks(t *testing.T) { onAll(t, true) }

// TestUnfenced is the control: if tokens are not compared, 19 of 20 runs show damage.
func TestUnfenced(t *testing.T) { onAll(t, false) }

// With -short, there is one run on each store with all common faults, and the control runs on one
// store. The seeds differ, so every fault occurs on some store.
func onAll(t *testing.T, fenced bool) {
	runs, n := *seeds, *faults
	if testing.Short() {
		runs, n = 1, 0
		t.Logf("-short: a run on each store instead of %d, with the faults that each has", *seeds)
	}
	for k, at := range fleet.Places() {
		t.Run(at.Name, func(t *testing.T) {
			first := *first
			if testing.Short() {
				if !fenced && k > 0 {
					t.Skip("the control: without -short")
				}
				t.Parallel()
				first += uint64(k)
			}
			shared := at.New(t)
			s := &total{struck: map[string]int{}}
			from := time.Now()
			t.Run("seeds", func(t *testing.T) {
				for i := range uint64(runs) {
					t.Run(fmt.Sprint(first+i), func(t *testing.T) {
						t.Parallel()
						store := shared
						if store.Server == nil {
							store = at.New(t) // a process that is stopped may hold the file
						}
						play(t, store, fenced, first+i, n, s)
					})
				}
			})
			t.Logf("%v, in %v", s, time.Since(from).Round(100*time.Millisecond))
			if !fenced && s.damaged*20 < s.runs*19 {
				t.Errorf("without the fence only %d of %d runs did damage: the faults prove nothing", s.damaged, s.runs)
			}
		})
	}
}

func play(t *testing.T, store *fleet.Store, fenced bool, seed uint64, n int, s *total) {
	space := fmt.Sprintf("run-%d", seed)
	b := store.Open(t, space)
	f := &chaos{fleet.New(t, store, space, seed), newResource(t, fenced, seed)}
	from := time.Now()
	f.Proxied = true
	for range members {
		f.start()
	}
	f.settle("the start")
	for _, k := range schedule(f.Rand, n, seed, f.Served()) {
		f.strike(k)
		f.Logf("%v %s", time.Since(from).Round(time.Millisecond), k)
		f.Pause(50, 500)
	}
	f.settle("the last fault")
	f.Logf("%v settled", time.Since(from).Round(time.Millisecond))
	f.LeaveAll()
	f.Logf("%v left", time.Since(from).Round(time.Millisecond))
	f.nothingLeft(b)
	f.check(s)
}

// strike causes one fault in a random process.
func (f *chaos) strike(k fault) {
	p := f.Any()
	f.Struck[string(k)]++
	switch k {
	case stopInWrite:
		for !f.stopInWrite(f.Any()) {
			f.Struck["stopped with the file"]++
		}
	case killInWrite:
		h := f.catch(p, "/write")
		f.Kill(p)
		f.start()
		f.overtake(h)
		close(h.release)
	case stopPast:
		cont := f.Stop(p)
		f.Pause(500, 2500)
		cont()
	case kill:
		f.Kill(p)
		f.Pause(0, 1500)
		f.start()
	case leave:
		f.Leave(p)
		f.start()
	case cut:
		f.Cut(p, 100, 2000)
	case loseReplies:
		f.LoseReplies(p, 50, 1500)
	}
}

func (f *chaos) catch(p *fleet.Proc, path string) *hold {
	f.Helper()
	h := f.r.catch(p.PID(), path)
	if h == nil {
		f.Fatalf("a member makes no request to %s within %v", path, ample.Time)
	}
	f.Cleanup(func() { // if the test fails earlier
		select {
		case <-h.release:
		default:
			close(h.release)
		}
	})
	return h
}

// stopInWrite stops a process in the middle of a write until another holder has written. If the
// store is a file, the process may be stopped in a transaction, which then blocks other processes.
func (f *chaos) stopInWrite(p *fleet.Proc) bool {
	f.Helper()
	h := f.catch(p, "/read")
	cont := f.Stop(p)
	defer cont()
	close(h.release)
	if !f.Served() {
		for range ample.During(fileLimit, 5*time.Millisecond) {
			if f.r.overtaken(h) {
				break
			}
		}
		if !f.r.overtaken(h) {
			return false
		}
	}
	f.overtake(h)
	return true
}

// overtake waits until another holder has written.
func (f *chaos) overtake(h *hold) {
	f.Helper()
	ample.Wait(f, "nobody else has "+h.name, func() bool { return f.r.overtaken(h) })
	f.Pause(1, 300)
}

// settle waits until each name has been locked and written again.
func (f *chaos) settle(what string) {
	f.Helper()
	before := f.r.counts()
	now := before
	if !ample.Soon(f.Context(), func() bool {
		now = f.r.counts()
		for i := range now {
			if now[i] < before[i]+members { // so that a write that was in progress does not count
				return false
			}
		}
		return true
	}) {
		f.Fatalf("%v after %s not all names are written: %v, then %v", ample.Time, what, before, now)
	}
}

// nothingLeft: after all members have left, a new member frees the locks whose holders' sessions
// ended while a claim was in progress. After that, no lock has a holder.
func (f *chaos) nothingLeft(b core.Backend) {
	f.Helper()
	locks, err := lock.New(b, &core.Options{Node: "judge", TTL: 5 * time.Second, LockDir: "none", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	defer locks.Close()
	k, err := locks.Lock(f.Context(), "judge")
	if err != nil {
		f.Fatal(err)
	}
	if err := k.Unlock(f.Context()); err != nil {
		f.Fatal(err)
	}
	var held []driver.ShardState
	if !ample.Soon(f.Context(), func() bool {
		held = slices.DeleteFunc(records(f.T, b), func(s driver.ShardState) bool { return s.Owner.Session == "" })
		return len(held) == 0
	}) {
		f.Errorf("%v after all have left there are holders: %+v", ample.Time, held)
	}
}

func records(t *testing.T, b core.Backend) []driver.ShardState {
	t.Helper()
	v, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(v.Shards, func(s driver.ShardState) bool { return !driver.IsLock(s.Shard) })
}

func (f *chaos) check(s *total) {
	f.r.Close() // after this, all requests have ended
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	writes, disordered, lost := 0, 0, 0
	for _, name := range slices.Sorted(maps.Keys(f.r.counters)) {
		c := f.r.counters[name]
		d, l := judge(c.writes)
		writes, disordered, lost = writes+len(c.writes), disordered+len(d), lost+len(l)
		for _, x := range append(d, l...) {
			if f.r.fenced {
				f.Errorf("%s: %s", name, x)
			}
		}
	}
	f.Logf("%d writes, %d refused, %d out of order, %d updates lost; %v", writes, f.r.refused, disordered, lost, f.Struck)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	if disordered+lost > 0 {
		s.damaged++
	}
	s.writes, s.refused, s.disordered, s.lost = s.writes+writes, s.refused+f.r.refused, s.disordered+disordered, s.lost+lost
	for k, n := range f.Struck {
		s.struck[k] += n
	}
}
