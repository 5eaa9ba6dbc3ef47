package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// onLeases runs f with n leases of one member. The store's limit CommitCalls is set to calls.
func onLeases(t *testing.T, n, calls int, f func(w *world, m *member, ls []*Lease)) {
	bubble(t, func(w *world) {
		m := w.member("a")
		m.info.Limits.CommitCalls = calls
		var h leases
		ls := make([]*Lease, n)
		for i := range ls {
			w.must(m.Contend(h.hold, fmt.Sprintf("s%03d", i)))
			ls[i] = h.await(w, i+1)
		}
		f(w, m, ls)
	})
}

// callsOf makes every commit take a millisecond and returns the sizes of the calls so far.
func callsOf(m *member) func() []int {
	var mu sync.Mutex
	var sizes []int
	m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
		mu.Lock()
		sizes = append(sizes, len(ws))
		mu.Unlock()
		time.Sleep(time.Millisecond)
		return next.Commit(ctx, ws)
	})
	return func() []int {
		mu.Lock()
		defer mu.Unlock()
		return sizes
	}
}

// each makes every lease append n entries, one after the other.
func each(w *world, ls []*Lease, n int) {
	var all sync.WaitGroup
	for _, l := range ls {
		all.Go(func() {
			for i := range n {
				if seq, err := l.Append(w.Context(), []byte{byte(i)}); err != nil || seq != Seq(i+1) {
					w.Errorf("shard %s: entry %d of %d: %v", l.Shard(), seq, i+1, err)
				}
			}
		})
	}
	all.Wait()
}

// The writes of all leases are sent together, in as many concurrent calls as CommitCalls allows.
// The writes of each shard stay in order.
func TestWritesOfLeasesTravelTogether(t *testing.T) {
	onLeases(t, 64, 2, func(w *world, m *member, ls []*Lease) {
		calls := callsOf(m)
		const n = 20
		each(w, ls, n)
		if got := len(calls()); got > 4*n {
			w.Errorf("%d calls for %d writes of %d shards", got, n, len(ls))
		}
		for _, l := range ls {
			entries := m.entries(l.Shard())
			if len(entries) != n {
				w.Errorf("shard %s has %d entries, want %d", l.Shard(), len(entries), n)
			}
		}
	})
}

// A call has at most BatchItems writes, and exceeds WriteBytes by less than one write.
func TestCallsAreWithinTheLimits(t *testing.T) {
	for _, c := range []struct {
		name         string
		items, bytes int
		most         int
	}{{"items", 8, 0, 8}, {"bytes", 1000, 40, 4}} {
		t.Run(c.name, func(t *testing.T) {
			onLeases(t, 32, 1, func(w *world, m *member, ls []*Lease) {
				m.info.Limits.BatchItems = c.items
				if c.bytes > 0 {
					m.info.Limits.WriteBytes = c.bytes
				}
				calls := callsOf(m)
				var all sync.WaitGroup
				for _, l := range ls {
					all.Go(func() {
						_, err := l.Append(w.Context(), make([]byte, 10))
						w.must(err)
					})
				}
				all.Wait()
				for _, n := range calls() {
					if n > c.most {
						w.Errorf("a call of %d writes, want at most %d", n, c.most)
					}
				}
			})
		})
	}
}

// together makes three leases append at the same time, in one call with the given answer, and
// returns the errors.
func together(w *world, m *member, ls []*Lease, answer commitFunc) []error {
	gate := make(chan struct{})
	m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
		<-gate
		return next.Commit(ctx, ws)
	})
	var all sync.WaitGroup
	all.Go(func() { _, err := ls[0].Append(w.Context(), nil); w.must(err) })
	synctest.Wait() // that call is the only one allowed
	errs := make([]error, len(ls))
	for i, l := range ls {
		all.Go(func() { _, errs[i] = l.Append(w.Context(), []byte("x")) })
		synctest.Wait()
	}
	first := true
	m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
		m.tap.mu.Lock()
		mine := first
		first = false
		m.tap.mu.Unlock()
		if mine {
			if len(ws) != len(ls) {
				w.Errorf("a call of %d writes, want %d", len(ws), len(ls))
			}
			return answer(next, ctx, ws)
		}
		return next.Commit(ctx, ws)
	})
	close(gate)
	all.Wait()
	return errs
}

// A4: the refusal of one shard's write does not affect other shards in the same call.
func TestRefusalTouchesNoNeighbour(t *testing.T) {
	onLeases(t, 3, 1, func(w *world, m *member, ls []*Lease) {
		other := w.member("b")
		var h leases
		w.must(other.Contend(h.hold, ls[1].Shard()))
		w.eventually("b joined", func() bool { return other.View().Session != "" })
		errs := together(w, m, ls, func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			_, err := next.Transfer(ctx, []driver.Transfer{{Fence: ls[1].Fence(), To: other.View().Session}})
			w.must(err)
			return next.Commit(ctx, ws)
		})
		if errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], ErrFenced) {
			w.Errorf("the outcomes are %v, want ErrFenced for the second alone", errs)
		}
		for _, i := range []int{0, 2} {
			if _, err := ls[i].Append(w.Context(), nil); err != nil {
				w.Errorf("the lease of shard %s after a neighbour was fenced: %v", ls[i].Shard(), err)
			}
		}
	})
}

// E1: after a call with an unknown outcome, the outcome of each write is found. Each write is
// applied once, whether or not the call was applied.
func TestUnknownCallIsSettledPerWrite(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprint("applied=", applied), func(t *testing.T) {
			onLeases(t, 3, 1, func(w *world, m *member, ls []*Lease) {
				errs := together(w, m, ls, func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
					if applied {
						_, err := next.Commit(ctx, ws)
						w.must(err)
					}
					return nil, errReset
				})
				for i, err := range errs {
					want := 1
					if i == 0 {
						want = 2 // with the preceding append
					}
					if n := len(m.entries(ls[i].Shard())); err != nil || n != want {
						w.Errorf("shard %s: %v, and %d entries, want %d", ls[i].Shard(), err, n, want)
					}
				}
			})
		})
	}
}

// If the store leaves a write out of a call because the shard's record is locked, the write is sent
// alone. The locked write delays neither the other writes of the call nor the writes that follow
// them.
func TestLockedShardDelaysNoOther(t *testing.T) {
	onLeases(t, 16, 1, func(w *world, m *member, ls []*Lease) {
		const lock = 2 * time.Second
		free := time.Now().Add(lock)
		locked := ls[0].Fence().Shard
		gate := make(chan struct{}) // so that other writes join the locked shard's write
		m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			<-gate
			var rest []driver.Write
			left := -1
			for i, x := range ws {
				if x.Fence.Shard == locked && time.Now().Before(free) {
					left = i
					continue
				}
				rest = append(rest, x)
			}
			switch {
			case left < 0:
			case len(ws) == 1:
				select {
				case <-time.After(time.Until(free)):
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
				return next.Commit(ctx, ws)
			}
			results, err := next.Commit(ctx, rest)
			if left >= 0 && err == nil {
				results = append(results[:left:left], append([]driver.CommitResult{{Err: ErrRetry}}, results[left:]...)...)
			}
			return results, err
		})
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() { each(w, ls[1:2], 20) })
		synctest.Wait()
		all.Go(func() {
			_, err := ls[0].Append(w.Context(), nil)
			w.must(err)
			if took := time.Since(began); took < lock {
				w.Errorf("the locked shard was written after %v", took)
			}
		})
		synctest.Wait()
		close(gate)
		each(w, ls[2:], 20)
		if took := time.Since(began); took > 200*time.Millisecond {
			w.Errorf("the others took %v", took)
		}
		all.Wait()
	})
}

// A slow call does not delay the next call, regardless of CommitCalls.
func TestSilentCallDelaysNoOther(t *testing.T) {
	onLeases(t, 2, 1, func(w *world, m *member, ls []*Lease) {
		gate := make(chan struct{})
		m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			if ws[0].Fence.Shard == ls[0].Fence().Shard {
				<-gate
			}
			return next.Commit(ctx, ws)
		})
		var all sync.WaitGroup
		all.Go(func() { _, err := ls[0].Append(w.Context(), nil); w.must(err) })
		synctest.Wait()
		began := time.Now()
		_, err := ls[1].Append(w.Context(), nil)
		if took := time.Since(began); err != nil || took > 50*time.Millisecond {
			w.Errorf("the other shard's commit: %v after %v", err, took)
		}
		close(gate)
		all.Wait()
	})
}

// A4: a call that the server refuses because of all its commits together is divided. The store may
// refuse the call or each of its writes. The reason may be one commit, or a limit that the server
// has lowered.
func TestCallRefusedAsOneIsDivided(t *testing.T) {
	const leases, of, takes, rounds = 16, 2, 3, 4
	for _, c := range []struct {
		name    string
		culprit bool // one commit alone is too large; otherwise, the server accepts few commits
		perItem bool
	}{{name: "few"}, {name: "few, each told", perItem: true}, {"culprit", true, false}, {"culprit, each told", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			onLeases(t, leases, 1, func(w *world, m *member, ls []*Lease) {
				var mu sync.Mutex
				calls, most := 0, 0
				m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
					time.Sleep(time.Millisecond)
					ops, large := 0, false
					for _, x := range ws {
						ops += len(x.Ops)
						for _, op := range x.Ops {
							large = large || string(op.Value) == "large"
						}
					}
					mu.Lock()
					calls++
					refuse := c.culprit && large || !c.culprit && ops > takes
					if !refuse {
						most = max(most, ops)
					}
					mu.Unlock()
					if !refuse {
						return next.Commit(ctx, ws)
					}
					err := fmt.Errorf("the server's limit: %w", ErrTooLarge)
					if !c.perItem {
						return nil, err
					}
					results := make([]driver.CommitResult, len(ws))
					for i := range results {
						results[i].Err = err
					}
					return results, nil
				})
				var all sync.WaitGroup
				for i, l := range ls {
					for j := range of {
						all.Go(func() {
							for r := range rounds {
								bad := c.culprit && i == 5 && j == 1 && r == 0
								payload := "x"
								if bad {
									payload = "large"
								}
								_, err := l.Append(w.Context(), []byte(payload))
								if errors.Is(err, ErrTooLarge) != bad || err != nil && !bad {
									w.Errorf("shard %s, commit %d of %d: %v", l.Shard(), r, j, err)
								}
							}
						})
					}
				}
				all.Wait()
				for i, l := range ls {
					want := of * rounds
					if c.culprit && i == 5 {
						want--
					}
					if n := len(m.entries(l.Shard())); n != want {
						w.Errorf("shard %s has %d entries, want %d", l.Shard(), n, want)
					}
				}
				const commits = leases * of * rounds
				switch {
				case c.culprit && calls >= leases*of:
					w.Errorf("%d calls, as if the commits beside the culprit had gone one by one", calls)
				case !c.culprit && (most < 2 || calls > commits):
					w.Errorf("%d calls for %d commits, at most %d in one: want fewer calls, and halves that fit", calls, commits, most)
				}
			})
		})
	}
}

// An overdue call permanently gives up its slot. Apart from overdue calls, there are never more
// concurrent calls than Limits.CommitCalls allows.
func TestOverdueCallGivesItsPlaceAway(t *testing.T) {
	onLeases(t, 8, 2, func(w *world, m *member, ls []*Lease) {
		m.info.Limits.BatchItems = 1 // so that there is always a lease that waits for a call
		gate := make(chan struct{})
		slow := ls[0].Fence().Shard
		var mu sync.Mutex
		under, most := 0, 0
		m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			if ws[0].Fence.Shard == slow {
				select {
				case <-gate:
				default:
					<-gate
					return next.Commit(ctx, ws)
				}
			}
			mu.Lock()
			under++
			most = max(most, under)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			under--
			mu.Unlock()
			return next.Commit(ctx, ws)
		})
		for range 2 {
			var all sync.WaitGroup
			all.Go(func() { _, err := ls[0].Append(w.Context(), nil); w.must(err) })
			synctest.Wait()
			for _, l := range ls[1:] {
				for range 3 {
					all.Go(func() {
						for range 100 {
							_, err := l.Append(w.Context(), nil)
							w.must(err)
						}
					})
				}
			}
			time.Sleep(30 * time.Millisecond) // the first call is overdue, the others continue
			close(gate)
			all.Wait()
			gate = make(chan struct{})
		}
		if most != 2 {
			w.Errorf("%d calls at once, want 2", most)
		}
	})
}

// A4: if the server refuses claims or releases only because they are sent together, each of them
// succeeds after a separate back-off.
func TestClaimsRefusedAsOne(t *testing.T) {
	const n, takes = 200, 4
	for _, perItem := range []bool{false, true} {
		t.Run(fmt.Sprint("each told=", perItem), func(t *testing.T) {
			bubble(t, func(w *world) {
				m := w.newMember("a")
				m.b = intercept.Wrap(m.tap, func(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
					time.Sleep(time.Millisecond)
					items := len(c.Claims) + len(c.Fences)
					if items <= takes {
						return proceed(ctx)
					}
					err := fmt.Errorf("the server's limit: %w", ErrTooLarge)
					if !perItem || c.Op == intercept.Release {
						return err
					}
					c.Granted = make([]driver.AcquireResult, items)
					for i := range c.Granted {
						c.Granted[i].Err = err
					}
					return nil
				})
				m.run()
				var h leases
				began := time.Now()
				w.must(m.Contend(h.hold, shardNames(n)...))
				h.await(w, n)
				if took := time.Since(began); took > 3*ttl {
					w.Errorf("%d shards were claimed after %v", n, took)
				}
				if err := m.end(); err != nil {
					w.Errorf("they were not given back: %v", err)
				}
			})
		})
	}
}
