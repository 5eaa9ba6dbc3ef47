package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/share"
)

// TestLock: one at a time has the lock, here and elsewhere, each with a greater token, and
// those of one process in the order in which they came.
func TestLock(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.process("a"), w.process("b")
		k := a.lock("x")
		var order []*Lock
		firstHad, _ := b.waits(w.Context(), "x")
		secondHad, _ := b.waits(w.Context(), "x")
		time.Sleep(5 * time.Second)
		if len(firstHad)+len(secondHad) > 0 || k.Err() != nil {
			w.Fatalf("another one has the lock, or it was lost: %v", k.Err())
		}
		token := k.Token()
		a.unlock(k)
		if k.Err() == nil {
			w.Error("a lock that was unlocked is still valid")
		}
		order = append(order, <-firstHad)
		synctest.Wait()
		if len(secondHad) > 0 {
			w.Fatal("two have the lock")
		}
		b.unlock(order[0])
		order = append(order, <-secondHad)
		b.unlock(order[1])
		if order[0].Token() <= token || order[1].Token() <= order[0].Token() {
			w.Errorf("tokens %d, %d, %d", token, order[0].Token(), order[1].Token())
		}
		if err := order[1].Unlock(w.Context()); err != nil {
			w.Errorf("a second Unlock: %v", err)
		}
	})
}

// TestFence: what is committed under a lock that was given back is refused.
func TestFence(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.process("a"), w.process("b")
		k := a.lock("x")
		fence := k.Fence()
		a.unlock(k)
		next := b.lock("x")
		if _, err := k.Commit(w.Context(), core.Put("k", []byte("zombie"))); !errors.Is(err, core.ErrLost) {
			w.Errorf("a commit under a lock that was unlocked: %v", err)
		}
		if next.Fence() == fence || next.Token() <= fence.Token {
			w.Errorf("fence %+v after %+v", next.Fence(), fence)
		}
		if _, err := next.Commit(w.Context(), core.Put("k", []byte("v"))); err != nil {
			w.Error(err)
		}
		b.unlock(next)
		k = a.lock("x")
		if it, err := k.Get(w.Context(), "k"); err != nil || it == nil || string(it.Value) != "v" || k.Head().Number != 1 {
			w.Errorf("what was committed under the lock: %v, %v, head %+v", it, err, k.Head())
		}
		a.unlock(k)
	})
}

// TestTryLock: it waits for nobody.
func TestTryLock(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.process("a"), w.process("b")
		k, err := a.TryLock(w.Context(), "x")
		if err != nil {
			w.Fatal(err)
		}
		for _, p := range []*process{a, b} {
			began := time.Now()
			if _, err := p.TryLock(w.Context(), "x"); !errors.Is(err, ErrHeld) || time.Since(began) > 100*time.Millisecond {
				w.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		if len(b.names) > 0 {
			w.Errorf("%d names are remembered", len(b.names))
		}
		a.unlock(k)
		synctest.Wait()
		if k, err = b.TryLock(w.Context(), "x"); err != nil {
			w.Fatal(err)
		}
		b.unlock(k)
	})
}

// TestGivenUp: a call whose context ends is out of the way of those behind it.
func TestGivenUp(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.process("a"), w.process("b")
		k := a.lock("x")
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(w.Context())
		_, failed := b.waits(ctx, "x")
		_, late := b.waits(ctx, "y") // has it, and nobody takes it
		had, _ := b.waits(w.Context(), "x")
		cancel(cause)
		if err := <-failed; !errors.Is(err, cause) || !errors.Is(err, ErrHeld) {
			w.Errorf("the first: %v", err)
		}
		_ = late
		a.unlock(k)
		b.unlock(<-had)
		// The last that waits gives up: nobody here contends any more.
		k = a.lock("z")
		ctx, stop := context.WithCancel(w.Context())
		_, failed = b.waits(ctx, "z")
		stop()
		<-failed
		a.unlock(k)
		synctest.Wait()
		if v := b.e.View(); v.Contended > 1 {
			w.Errorf("the process still contends for %d locks", v.Contended)
		}
		if len(b.names) > 1 { // y is held
			w.Errorf("%d names are remembered", len(b.names))
		}
		b.mu.Lock()
		held := b.names["y"].holder
		b.mu.Unlock()
		b.unlock(held)
	})
}

// TestStoreAway: who waits for a store that does not answer is told so.
func TestStoreAway(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.process("a")
		a.link.Cut()
		for _, take := range []func(context.Context, string) (*Lock, error){a.Lock, a.TryLock} {
			ctx, cancel := context.WithTimeout(w.Context(), 3*ttl)
			_, err := take(ctx, "x")
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "the store has not granted it") {
				w.Errorf("%v", err)
			}
		}
		a.link.Heal()
		a.unlock(a.lock("x"))
		synctest.Wait()
		if len(a.names) > 0 {
			w.Errorf("%d names are left", len(a.names))
		}
	})
}

// TestGivenUpInTurn: a call that is to contend and gives up before leaves that to the next.
func TestGivenUpInTurn(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.process("a"), w.process("b")
		for end := time.Now().Add(turn); time.Now().Before(end); time.Sleep(time.Millisecond) {
			a.unlock(a.lock("x"))
		}
		ctx, cancel := context.WithTimeout(w.Context(), pause/4)
		defer cancel()
		_, failed := a.waits(ctx, "x")
		had, _ := a.waits(w.Context(), "x")
		if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("the first: %v", err)
		}
		a.unlock(<-had)
	})
}

// TestGivenUpAndGranted: a call that is granted the lock as it gives up unlocks it.
func TestGivenUpAndGranted(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.process("a")
		k := a.lock("x")
		both := &waiter{granted: make(chan *Lock, 1), turn: make(chan struct{}, 1)}
		both.granted <- k
		if k, err := a.leave(w.Context(), "x", driver.LockPrefix+"x", both, false, errors.New("enough")); k != nil || err == nil {
			w.Errorf("it has %v, %v", k, err)
		}
		k, err := a.TryLock(w.Context(), "x")
		if err != nil {
			w.Fatal(err)
		}
		a.unlock(k)
	})
}

// TestLostAndKept: while a lock that was lost is not unlocked, its work may go on, and nobody
// else in the process has the lock (S11).
func TestLostAndKept(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.process("a")
		k := a.lock("x")
		had, _ := a.waits(w.Context(), "x")
		a.link.Cut()
		time.Sleep(2 * ttl)
		a.link.Heal()
		time.Sleep(10 * ttl)
		if k.Err() == nil || len(had) > 0 {
			w.Errorf("the lock is lost: %v; another one has it: %v", k.Err(), len(had) > 0)
		}
		if err := k.Unlock(w.Context()); !errors.Is(err, core.ErrLost) {
			w.Errorf("unlocking: %v", err)
		}
		a.unlock(<-had)
	})
}

// TestHolderDies: another has the lock after the TTL, and who lost it is told so by Unlock.
func TestHolderDies(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.process("a"), w.process("b")
		k, unwanted := a.lock("x"), a.lock("nobody-else-wants-it")
		had, _ := b.waits(w.Context(), "x")
		a.link.Cut()
		began := time.Now()
		next := <-had
		if took := time.Since(began); took < ttl/2 || took > 3*ttl {
			w.Errorf("taken over after %v", took)
		}
		if k.Err() == nil || k.Context().Err() == nil {
			w.Error("the former holder believes in its lock")
		}
		time.Sleep(ttl)
		for _, s := range b.e.View().Shards {
			if s.Shard == driver.LockPrefix+unwanted.Name() {
				w.Errorf("the lock of a process that ended is still there: %+v", s)
			}
		}
		a.link.Heal()
		for _, k := range []*Lock{k, unwanted} {
			if err := k.Unlock(w.Context()); !errors.Is(err, core.ErrLost) {
				w.Errorf("unlocking a lock that was lost: %v", err)
			}
		}
		b.unlock(next)
	})
}

// TestStop: the end of Run is told to those that wait, and a lock that is held is given back
// once it is unlocked.
func TestStop(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.process("a"), w.process("b")
		k := a.lock("x")
		_, failed := a.waits(w.Context(), "x")
		closed := make(chan error, 1)
		go func() { closed <- a.Close() }()
		had, _ := b.waits(w.Context(), "x")
		time.Sleep(5 * time.Second)
		if len(closed) > 0 || k.Err() != nil {
			w.Fatalf("the lock was lost while it was held: %v", k.Err())
		}
		a.unlock(k)
		if err := <-closed; err != nil {
			w.Error(err)
		}
		if err := <-failed; !errors.Is(err, core.ErrStopped) {
			w.Errorf("who waited is told %v", err)
		}
		a, k = w.process("c"), <-had
		_, failed = a.waits(w.Context(), "x") // for another process
		if err := a.Close(); err != nil {
			w.Error(err)
		}
		if err := <-failed; !errors.Is(err, core.ErrStopped) {
			w.Errorf("who waits for another process is told %v", err)
		}
		b.unlock(k)
		if _, err := a.Lock(w.Context(), "y"); !errors.Is(err, core.ErrStopped) {
			w.Errorf("a Lock after the end: %v", err)
		}
	})
}

// TestNames: a name that is no shard's is refused before anything is sent.
func TestNames(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.process("a")
		before := w.store.Counts().Writes
		for _, name := range []string{"", "a b", "a/b", "ä", "x\n", strings.Repeat("x", MaxName+1)} {
			if _, err := a.Lock(w.Context(), name); !errors.Is(err, core.ErrInvalid) {
				w.Errorf("%q: %v", name, err)
			}
		}
		if n := w.store.Counts().Writes - before; n > 0 {
			w.Errorf("%d writes", n)
		}
		a.unlock(a.lock(strings.Repeat("x", MaxName)))
	})
}

// TestWaitingIsFree: those of one process that wait cost the store nothing.
func TestWaitingIsFree(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.process("a")
		k := a.lock("x")
		var waiting []chan *Lock
		for range 100 {
			had, _ := a.waits(w.Context(), "x")
			waiting = append(waiting, had)
		}
		before := w.store.Counts().Writes
		time.Sleep(10 * time.Second)
		if n := w.store.Counts().Writes - before; n > 0 {
			w.Errorf("%d writes while 100 calls waited", n)
		}
		for i, had := range append(waiting, nil) {
			a.unlock(k)
			if had != nil {
				k = <-had
			}
			if i == 100 {
				break
			}
		}
	})
}

// TestFair: a process that takes a lock again and again leaves it to others for 20 ms after 100 ms.
// A process that always sees last that it is free takes it in such a pause.
func TestFair(t *testing.T) {
	bubble(t, func(w *world) {
		ps := []*process{w.process("a"), w.process("b"), w.process("c")}
		ps[2].late.Store(int64(3 * time.Millisecond)) // it sees last that the lock is free
		counts := make([]int, len(ps))
		longest, streak := make([]time.Duration, len(ps)), make([]time.Duration, len(ps))
		end := time.Now().Add(20 * time.Second)
		var all sync.WaitGroup
		for i, p := range ps {
			all.Go(func() {
				rested, unlocked := time.Now(), time.Now()
				for time.Now().Before(end) {
					began := time.Now()
					k := p.lock("x")
					longest[i] = max(longest[i], time.Since(began))
					if time.Since(unlocked) >= pause {
						rested = time.Now()
					}
					streak[i] = max(streak[i], time.Since(rested))
					time.Sleep(2 * time.Millisecond)
					p.unlock(k)
					unlocked = time.Now()
					counts[i]++
				}
			})
		}
		all.Wait()
		total := counts[0] + counts[1] + counts[2]
		for i, n := range counts {
			// Seen in 50 runs: the third has 109 to 497 of 9,000, and 1 to 24 if nobody leaves it.
			if n < total/150 || longest[i] > 10*time.Second {
				w.Errorf("process %d had the lock %d times of %d, and waited up to %v", i, n, total, longest[i])
			}
			if streak[i] > turn+pause {
				w.Errorf("process %d left the lock to nobody for %v", i, streak[i])
			}
		}
		if total < 1000 {
			w.Errorf("the lock was had %d times in 20 s", total)
		}
	})
}

// TestFleet: beside members that do not want it a lock moves as soon as it was given back.
func TestFleet(t *testing.T) {
	bubble(t, func(w *world) {
		var ps []*process
		for i := range 8 {
			ps = append(ps, w.process(fmt.Sprint("p", i)))
		}
		k := ps[0].lock("x")
		for i := range 20 {
			had, _ := ps[1-i%2].waits(w.Context(), "x")
			time.Sleep(200 * time.Millisecond)
			began := time.Now()
			ps[i%2].unlock(k)
			k = <-had
			if took := time.Since(began); took > time.Millisecond {
				w.Errorf("hand-over %d took %v", i, took)
			}
		}
		ps[0].unlock(k)
	})
}

// TestNothingIsLeft: names that were used once leave nothing, neither in the store nor here.
func TestNothingIsLeft(t *testing.T) {
	names := share.Of(t, "names", 5000, 1500)
	bubble(t, func(w *world) {
		a, b := w.process("a"), w.process("b")
		for i := range names {
			a.unlock(a.lock(fmt.Sprintf("name-%d", i)))
		}
		synctest.Wait()
		for _, p := range []*process{a, b} {
			if len(p.names) > 0 || len(p.used) > maxUsed || len(p.e.View().Shards) > 0 {
				w.Errorf("%d names, %d used ones, %d shards", len(p.names), len(p.used), len(p.e.View().Shards))
			}
		}
		if n := len(w.store.Keys("test/!state/shard/")); n > 0 {
			w.Errorf("%d records", n)
		}
	})
}

// TestChaos: whoever waits gives up, tries, cuts its connection or stops, at random, and no
// two have the lock at a time.
func TestChaos(t *testing.T) {
	for seed := range uint64(share.Of(t, "seeds", 8, 2)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(w *world) { chaos(w, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func chaos(w *world, rng *rand.Rand) {
	ps := []*process{w.process("a"), w.process("b"), w.process("c")}
	var holders [3]atomic.Int32
	var newest [3]atomic.Int64
	var had, cut atomic.Int64
	end := time.Now().Add(30 * time.Second)
	var all sync.WaitGroup
	for i, p := range ps {
		for g := range 6 {
			rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(i*10+g)))
			all.Go(func() {
				for time.Now().Before(end) {
					x := rng.IntN(len(holders))
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(3000))*time.Millisecond)
					take := p.Lock
					if rng.IntN(3) == 0 {
						take = p.TryLock
					}
					k, err := take(ctx, fmt.Sprint("x", x))
					cancel()
					if err != nil {
						time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
						continue
					}
					if k.Err() == nil {
						if n := holders[x].Add(1); n > 1 && k.Err() == nil {
							w.Errorf("%d hold lock %d", n, x)
						}
						if old := newest[x].Swap(int64(k.Token())); old >= int64(k.Token()) {
							w.Errorf("lock %d: token %d after %d", x, k.Token(), old)
						}
						select { // a zombie stops by its own clock
						case <-time.After(time.Duration(rng.IntN(30)) * time.Millisecond):
						case <-k.Context().Done():
						}
						holders[x].Add(-1)
						had.Add(1)
					}
					if err := k.Unlock(context.Background()); err != nil && !errors.Is(err, core.ErrLost) {
						w.Errorf("unlocking: %v", err)
					}
				}
			})
		}
	}
	for time.Now().Before(end.Add(-5 * time.Second)) {
		p := ps[rng.IntN(len(ps))]
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		p.link.Cut()
		cut.Add(1)
		time.Sleep(time.Duration(rng.IntN(2500)) * time.Millisecond)
		p.link.Heal()
	}
	all.Wait()
	if had.Load() < 100 {
		w.Errorf("locks were had %d times beside %d cuts", had.Load(), cut.Load())
	}
	for _, p := range ps {
		if len(p.names) > 0 {
			w.Errorf("%d names are left", len(p.names))
		}
	}
}
