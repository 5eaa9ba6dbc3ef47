// Package stores_test performs effects under leases from real stores, in real processes that are
// killed and stopped. The provider that receives the effects loses requests and replies.
package stores_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/fleet"
)

var (
	effects = flag.Int("effects", 1200, "how many effects are made in each mode; on servers a third of it, unless -full is set")
	faults  = flag.Int("faults", 4, "how many faults strike meanwhile; on servers half of it and one more, unless -full is set")
	latency = flag.Duration("latency", 4*time.Millisecond, "how long the provider takes for a charge")
	full    = flag.Bool("full", false, "as many effects and faults, and all modes, on every store")
)

const (
	shard    = "payments"
	atOnce   = 64
	progress = "progress" // the key of the first effect that is not known to have ended
)

func TestMain(m *testing.M) { os.Exit(fleet.Main(m, child)) }

type setting struct {
	Provider string // its address
	Mode     mode
	Effects  int
}

func key(i int) string { return fmt.Sprintf("pay/%07d", i) }

// child runs a member that performs all effects when it leads.
func child(ctx context.Context, b core.Backend, o *core.Options, set setting) error {
	e, err := core.NewElector(b, o)
	if err != nil {
		return err
	}
	p := &payer{setting: set, client: &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 2 * atOnce}}}
	if err := e.Contend(p.serve, shard); err != nil {
		return err
	}
	return e.Run(ctx)
}

// payer performs the effects of a child.
type payer struct {
	setting
	client *http.Client
}

func (p *payer) options(l *core.Lease) *effect.Options {
	o := &effect.Options{Concurrent: atOnce, MaxInDoubt: 10_000, Attempts: 20, BackoffMin: 5 * time.Millisecond,
		BackoffMax: 200 * time.Millisecond, Deadline: 4 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	if p.Mode == keyed {
		o.Repeatable = true
		return o
	}
	o.Resolve = func(ctx context.Context, e effect.Effect) (effect.Decision, error) {
		text, _, err := p.ask(ctx, "/find", e.ID, l)
		if err != nil {
			return effect.Decision{}, err
		}
		switch n, err := strconv.Atoi(text); {
		case err != nil:
			return effect.Decision{}, err
		case n == 1:
			return effect.Decision{State: effect.Done, Result: []byte("receipt of " + e.ID)}, nil
		case n == 0 && p.Mode == fenced:
			return effect.Decision{State: effect.Repeat}, nil // requests that still arrive have a lower token
		default:
			return effect.Decision{Reason: fmt.Sprintf("charged %d times as yet", n)}, nil
		}
	}
	return o
}

// ask sends a request. If there is no answer, the status is 0.
func (p *payer) ask(ctx context.Context, path, id string, l *core.Lease) (text string, status int, err error) {
	q := url.Values{"id": {id}, "token": {fmt.Sprint(l.Token())}, "pid": {strconv.Itoa(os.Getpid())}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Provider+path+"?"+q.Encode(), nil)
	if err != nil {
		return "", 0, err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err != nil {
		return "", 0, err
	}
	if res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.100s", res.Status, body)
	}
	return string(body), res.StatusCode, err
}

// serve performs the remaining effects, and then waits until it should stop.
func (p *payer) serve(ctx context.Context, l *core.Lease) error {
	ledger, err := effect.Open(ctx, l, p.options(l))
	if err != nil {
		return err
	}
	defer ledger.Close()
	from := 0
	item, err := l.Get(ctx, progress)
	if err != nil {
		return err
	}
	if item != nil {
		if from, err = strconv.Atoi(string(item.Value)); err != nil {
			return err
		}
	}
	w := &work{next: from, done: map[int]bool{}, low: from}
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for i := w.take(p.Effects); i >= 0 && ctx.Err() == nil; i = w.take(p.Effects) {
				if !p.pay(ctx, ledger, l, i) {
					return
				}
				if low := w.end(i); low >= 0 || i == p.Effects-1 {
					_, _ = l.Commit(l.Context(), core.Put(progress, []byte(strconv.Itoa(max(low, 0)))))
				}
			}
		})
	}
	group.Wait()
	if ctx.Err() == nil && w.low == p.Effects {
		if _, err := l.Commit(l.Context(), core.Put(progress, []byte(strconv.Itoa(p.Effects)))); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// pay performs one effect. It returns false if the leader must stop.
func (p *payer) pay(ctx context.Context, ledger *effect.Ledger, l *core.Lease, i int) bool {
	for {
		result, err := ledger.Do(ctx, key(i), func(ctx context.Context, id string) ([]byte, error) {
			text, status, err := p.ask(ctx, "/charge", id, l)
			if status == http.StatusServiceUnavailable || status == http.StatusPreconditionFailed {
				err = effect.NotDone(err)
			}
			return []byte(text), err
		})
		switch {
		case err == nil:
			if !strings.HasPrefix(string(result), "receipt of ") {
				panic(fmt.Sprintf("%s has the result %q", key(i), result))
			}
			return true
		case l.Err() != nil || ctx.Err() != nil:
			return false
		case p.Mode == plain && errors.Is(err, effect.ErrInDoubt):
			return true // for a person
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
}

// work records the effects that have ended under one lease.
type work struct {
	mu   sync.Mutex
	next int
	low  int // all effects below this number have ended
	done map[int]bool
	said int
}

func (w *work) take(all int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next >= all {
		return -1
	}
	w.next++
	return w.next - 1
}

// end returns the number of the effect at which a later leader should begin, or -1 if it is not yet
// time to write this number.
func (w *work) end(i int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[i] = true
	for w.done[w.low] {
		delete(w.done, w.low)
		w.low++
	}
	if w.low < w.said+200 {
		return -1
	}
	w.said = w.low
	return w.low
}

// chaos contains the children of one test and their payments.
type chaos struct {
	*fleet.Fleet
	effects int
	p       *provider
}

func (f *chaos) start() {
	f.Helper()
	f.Start(setting{f.p.URL, f.p.mode, f.effects})
}

// TestEffects performs effects while leaders are killed and stopped, and the store is stopped. With
// idempotency keys or tokens, each effect is charged once. Without either of these, every effect
// that is charged twice or has an unknown outcome is listed as in doubt.
func TestEffects(t *testing.T) {
	for i, at := range fleet.Places() {
		t.Run(at.Name, func(t *testing.T) {
			n, strikes, modes := *effects, *faults, []mode{keyed, plain, fenced}
			if testing.Short() {
				t.Parallel()
			}
			store := at.New(t)
			switch {
			case store.Server == nil || *full:
			case testing.Short():
				n, strikes, modes = n/3, strikes/2+1, modes[i%3:i%3+1]
				t.Logf("-short: one mode of three, %d effects, %d faults", n, strikes)
			default:
				n, strikes, modes = n/3, strikes/2+1, []mode{keyed, modes[1+i%2]}
			}
			for _, m := range modes {
				t.Run(string(m), func(t *testing.T) {
					seed := rand.Uint64()
					f := &chaos{Fleet: fleet.New(t, store, string(m), seed), effects: n, p: newProvider(t, m, seed)}
					from := time.Now()
					b := f.Open()
					for range 3 {
						f.start()
					}
					f.disturb(b, strikes)
					f.finish(b)
					took := time.Since(from)
					f.LeaveAll()
					f.check(b)
					t.Logf("%d effects in %v, %v, seed %d", n, took.Round(time.Millisecond), f.Struck, seed)
				})
			}
		})
	}
}

// disturb strikes the leader during its work. The k-th strike follows k parts of the work.
func (f *chaos) disturb(b core.Backend, strikes int) {
	for k := range strikes {
		part := f.effects / strikes
		c := f.Of(f.await(b, k*part+f.Rand.IntN(part)+1))
		if c == nil {
			continue // the process has just ended
		}
		switch kind := k % 4; {
		case kind == 0:
			f.Struck["killed"]++
			f.Kill(c)
			f.start()
		case kind == 1:
			f.Struck["stopped"]++
			cont := f.Stop(c)
			f.Pause(1500, 3000)
			cont()
		case kind == 2 && f.Served():
			f.Struck["store stopped"]++
			f.StopStore(200, 1500)
		default:
			f.Struck["asked to stop"]++
			f.Leave(c)
			f.start()
		}
	}
}

// await waits until n ids were charged, or all were tried, and returns the leading process. Each
// strike may prevent the charges that are in progress.
func (f *chaos) await(b core.Backend, ids int) (leader int) {
	n, i, before := 0, 0, -1
	for { // as long as effects are made
		if ample.Soon(f.Context(), func() bool {
			n, leader = f.p.seen()
			i++
			return n >= ids || i%20 == 0 && f.tried(b)
		}) {
			return leader
		}
		if n == before {
			f.Fatalf("%d charges of %d", n, ids)
		}
		before = n
	}
}

// tried reports whether all effects were made or are in doubt.
func (f *chaos) tried(b core.Backend) bool {
	item, err := b.Get(f.Context(), shard, progress)
	return err == nil && item != nil && string(item.Value) == strconv.Itoa(f.effects)
}

func (f *chaos) finish(b core.Backend) {
	for before := -1; !ample.Soon(f.Context(), func() bool { return f.tried(b) }); { // as long as effects are made
		n, _ := f.p.seen()
		if n == before {
			item, err := b.Get(f.Context(), shard, progress)
			open, err2 := effect.ReadOpen(f.Context(), b, shard, 10)
			f.Fatalf("long after the last fault %d are charged, %v, %v; open: %+v, %v", n, item, err, open, err2)
		}
		before = n
	}
}

func (f *chaos) check(b core.Backend) {
	open, err := effect.ReadOpen(f.Context(), b, shard, 10_000)
	if err != nil {
		f.Fatal(err)
	}
	listed := map[string]bool{}
	for _, e := range open {
		listed[e.Key] = true
	}
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	never, once, twice, silent := 0, 0, 0, 0
	for i := range f.effects {
		e, err := effect.Read(f.Context(), b, shard, key(i))
		if err != nil || e == nil {
			f.Fatalf("%s: %+v, %v", key(i), e, err)
		}
		n := f.p.charges[e.ID]
		switch n {
		case 0:
			never++
		case 1:
			once++
		default:
			twice++
		}
		if listed[e.Key] != e.State.Open() {
			f.Errorf("%s is %q, and listed as open: %v", e.Key, e.State, listed[e.Key])
		}
		if !listed[e.Key] && (n != 1 || e.State != effect.Done) {
			silent++
			f.Errorf("%s was charged %d times, and is %q: %+v", e.Key, n, e.State, e)
		}
	}
	if f.p.mode != plain && (once != f.effects || len(open) > 0) {
		f.Errorf("%d never charged, %d twice, %d in doubt", never, twice, len(open))
	}
	f.Logf("%s: %d charged once, %d never, %d more than once, %d silently; %d in doubt (%.3f %%); "+
		"%d requests, %d lost, %d replies lost, %d busy, %d refused by token",
		f.p.mode, once, never, twice, silent, len(open), 100*float64(len(open))/float64(f.effects), f.p.requests.Load(),
		f.p.lostRequests.Load(), f.p.lostReplies.Load(), f.p.busy.Load(), f.p.refused.Load())
}

// TestCalls counts the store calls of 64 concurrent effects, with a provider that takes from 0 to
// 20 ms.
func TestCalls(t *testing.T) {
	for _, took := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		t.Run(took.String(), func(t *testing.T) {
			b, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "t.db"), "test", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			var calls, ops atomic.Int64
			o := &core.Options{LockDir: "none", Logger: slog.New(slog.DiscardHandler)}
			o.Hooks.OnCall = func(c core.Call) {
				if c.Kind == "commit" {
					calls.Add(1)
					ops.Add(int64(c.Items))
				}
			}
			const n = 2000
			err = core.RunSingleton(t.Context(), b, shard, func(ctx context.Context, l *core.Lease) error {
				ledger, err := effect.Open(ctx, l, nil)
				if err != nil {
					return err
				}
				defer ledger.Close()
				w := &work{done: map[int]bool{}}
				var group sync.WaitGroup
				for range atOnce {
					group.Go(func() {
						for i := w.take(n); i >= 0; i = w.take(n) {
							if _, err := ledger.Do(ctx, key(i), func(context.Context, string) ([]byte, error) {
								time.Sleep(took)
								return []byte("receipt"), nil
							}); err != nil {
								t.Error(err)
							}
						}
					})
				}
				from := time.Now()
				group.Wait()
				t.Logf("%.0f effects a second", n/time.Since(from).Seconds())
				return nil
			}, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.3f calls an effect, of %.2f operations in all", float64(calls.Load())/n, float64(ops.Load())/n)
			most := int64(n / 10)
			if took > 5*time.Millisecond {
				most = n / 5 // effects arrive more slowly than a fast store commits
			}
			if ops.Load() != 5*n || calls.Load() > most {
				t.Errorf("%d effects cost %d calls of %d operations", n, calls.Load(), ops.Load())
			}
		})
	}
}
