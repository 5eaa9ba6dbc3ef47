package fence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/fence"
)

// anyShard is a MayWrite for tests that do not depend on the resource's name.
func anyShard(driver.ShardID, string) bool { return true }

func lease(session string, token driver.Token) driver.Fence {
	return driver.Fence{Shard: "ledger", Session: driver.SessionID(session), Token: token}
}

// storages opens the storages that need no server.
func storages(t *testing.T) map[string]fence.Storage {
	file, err := fence.OpenFile(filepath.Join(t.TempDir(), "marks"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	return map[string]fence.Storage{"memory": &fence.Memory{}, "file": file, "sqlite": sqliteMarks(t)}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	for name, s := range storages(t) {
		t.Run(name, func(t *testing.T) { testAdmit(t, s) })
	}
}

func testAdmit(t *testing.T, s fence.Storage) {
	ctx := t.Context()
	var reported []*fence.RefusedError
	m := fence.NewMark(s, &fence.Options{MayWrite: anyShard, OnRefused: func(e *fence.RefusedError) {
		reported = append(reported, e)
	}})
	steps := []struct {
		resource string
		f        driver.Fence
		refused  driver.Fence // zero: admitted
	}{
		{"r", lease("a", 5), driver.Fence{}},
		{"r", lease("a", 5), driver.Fence{}},
		{"r", lease("b", 5), lease("a", 5)}, // the same token from a different holder
		{"r", lease("b", 4), lease("a", 5)},
		{"r2", lease("b", 4), driver.Fence{}}, // resources are independent
		{"R", lease("b", 3), driver.Fence{}},
		{"r", lease("b", 6), driver.Fence{}},
		{"r", lease("a", 5), lease("b", 6)},
		{"r", driver.Fence{Shard: "other", Session: "b", Token: 6}, lease("b", 6)},
		{"r", lease("c", 1<<62), driver.Fence{}},
		{"r", lease("b", 6), lease("c", 1<<62)},
	}
	refusals := 0
	for i, st := range steps {
		err := m.Admit(ctx, st.resource, st.f)
		if st.refused == (driver.Fence{}) {
			if err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			continue
		}
		refusals++
		e, ok := errors.AsType[*fence.RefusedError](err)
		if !ok || !errors.Is(err, driver.ErrFenced) || !driver.NotApplied(err) {
			t.Fatalf("step %d: got %v, want a RefusedError", i, err)
		}
		if e.Resource != st.resource || e.Fence != st.f || e.Current != st.refused || len(reported) != refusals ||
			reported[refusals-1] != e {
			t.Fatalf("step %d: got %+v, reported %d times, want current %v", i, e, len(reported), st.refused)
		}
	}
	if m.Refused() != uint64(refusals) {
		t.Errorf("counted %d refusals, want %d", m.Refused(), refusals)
	}
}

func TestAdmitInvalid(t *testing.T) {
	t.Parallel()
	m := fence.NewMark(&fence.Memory{}, nil)
	for _, resource := range []string{"", "a b", "a\x00", "é", `a"b`, "a'b", `a\b`, "a`b", "a\n",
		string(make([]byte, 201))} {
		if err := m.Admit(t.Context(), resource, lease("a", 1)); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("resource %q: got %v, want ErrInvalid", resource, err)
		}
	}
	for _, f := range []driver.Fence{{}, lease("a", 0), lease("a", -1), lease("", 1),
		{Shard: "a/b", Session: "s", Token: 1}} {
		if err := m.Seal(t.Context(), "r", f); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("fence %v: got %v, want ErrInvalid", f, err)
		}
	}
}

// TestDoExcludes: a higher token ends the contexts of lower tokens' effects, and begins its effect
// after these effects have ended.
func TestDoExcludes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := fence.NewMark(&fence.Memory{}, &fence.Options{MayWrite: anyShard, Wait: time.Hour})
		ctx := t.Context()
		var all sync.WaitGroup
		defer all.Wait()
		finish := make(chan struct{})
		var ended atomic.Int32
		for range 2 { // concurrent effects under one fence
			all.Go(func() {
				err := m.Do(ctx, "r", lease("a", 1), func(ctx context.Context) error {
					<-ctx.Done()
					if e, ok := errors.AsType[*fence.RefusedError](context.Cause(ctx)); !ok ||
						e.Current != lease("b", 2) {
						t.Errorf("the effect's context ended by %v", context.Cause(ctx))
					}
					<-finish
					ended.Add(1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		impatient, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := m.Seal(impatient, "r", lease("b", 2)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("sealed over a running effect: %v", err)
		}
		if err := m.Admit(ctx, "r", lease("a", 1)); !errors.Is(err, driver.ErrFenced) {
			t.Fatalf("after a seal that still waits: %v", err)
		}
		if err := m.Seal(ctx, "other", lease("b", 2)); err != nil {
			t.Fatalf("another resource: %v", err)
		}
		all.Go(func() { // canceled effects end one by one
			time.Sleep(time.Minute)
			finish <- struct{}{}
			finish <- struct{}{}
		})
		if err := m.Seal(ctx, "r", lease("b", 2)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := ended.Load(); n != 2 {
			t.Fatalf("sealed with %d of 2 effects ended", n)
		}
	})
}

// TestWaitBounded: an effect that does not end keeps a higher token waiting only for Options.Wait,
// and the lower token stays refused.
func TestWaitBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, o := range []*fence.Options{nil, {Wait: time.Minute}} {
			m := fence.NewMark(&fence.Memory{}, o)
			want := 10 * time.Second // Options.Wait by default
			if o != nil {
				want = o.Wait
			}
			_, leave, err := m.Enter(t.Context(), "ledger/7", lease("a", 10))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := m.Seal(t.Context(), "ledger/7", lease("b", 11)); !errors.Is(err, fence.ErrBusy) ||
				time.Since(began) != want {
				t.Errorf("after %v, want %v: %v", time.Since(began), want, err)
			}
			if err := m.Admit(t.Context(), "ledger/7", lease("a", 10)); !errors.Is(err, driver.ErrFenced) {
				t.Errorf("the lower token: %v", err)
			}
			leave()
			if err := m.Seal(t.Context(), "ledger/7", lease("b", 11)); err != nil {
				t.Errorf("after the effect: %v", err)
			}
		}
	})
}

// TestForeign: a lease of another shard can neither write nor lock out the owner.
func TestForeign(t *testing.T) {
	t.Parallel()
	for name, s := range storages(t) {
		t.Run(name, func(t *testing.T) {
			m := fence.NewMark(s, nil)
			for _, resource := range []string{"ledger", "ledger/7", "ledger/7/a"} {
				for _, shard := range []driver.ShardID{"shard-a", "ledge", "ledger2", "Ledger"} {
					f := driver.Fence{Shard: shard, Session: "a", Token: 99}
					_, _, entered := m.Enter(t.Context(), resource, f)
					for _, err := range []error{entered, m.Admit(t.Context(), resource, f),
						m.Seal(t.Context(), resource, f)} {
						e, ok := errors.AsType[*fence.ForeignError](err)
						if !ok || *e != (fence.ForeignError{Resource: resource, Fence: f}) ||
							!errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrFenced) {
							t.Errorf("%s under a lease of %s: %v", resource, shard, err)
						}
					}
				}
				if err := m.Admit(t.Context(), resource, lease("b", 1)); err != nil {
					t.Errorf("the owner of %s: %v", resource, err)
				}
			}
			for _, resource := range []string{"ledger-7", "ledgers", "Ledger", "x/ledger"} {
				if err := m.Admit(t.Context(), resource, lease("b", 1)); !errors.Is(err, driver.ErrInvalid) {
					t.Errorf("%s: %v", resource, err)
				}
			}
		})
	}
}

// TestDoRandom: in any order of arrival, effects of different tokens never overlap, and run in the
// order of tokens.
func TestDoRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			m := fence.NewMark(&fence.Memory{}, &fence.Options{MayWrite: anyShard, Wait: time.Hour})
			var mu sync.Mutex
			running := map[driver.Token]int{}
			var highest driver.Token
			admitted := 0
			var all sync.WaitGroup
			for range 50 {
				token := driver.Token(rng.IntN(10) + 1)
				wait, work := time.Duration(rng.IntN(50)), time.Duration(rng.IntN(10))
				all.Go(func() {
					time.Sleep(wait)
					err := m.Do(t.Context(), "r", lease(fmt.Sprint("s", token), token), func(context.Context) error {
						mu.Lock()
						running[token]++
						admitted++
						if len(running) > 1 || token < highest {
							t.Errorf("seed %d: token %d runs beside %v after %d", seed, token, running, highest)
						}
						highest = max(highest, token)
						mu.Unlock()
						time.Sleep(work)
						mu.Lock()
						if running[token]--; running[token] == 0 {
							delete(running, token)
						}
						mu.Unlock()
						return nil
					})
					if err != nil && !errors.Is(err, driver.ErrFenced) {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if admitted == 0 || admitted+int(m.Refused()) != 50 {
				t.Errorf("seed %d: %d admitted and %d refused of 50", seed, admitted, m.Refused())
			}
		})
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	f := lease("S1", 42)
	if got := fence.Format(f); got != "ledger/S1/42" {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{"", "a", "a/b", "a/b/c", "a/b/0", "a/b/-1", "a/b/01", "a/b/+1", "a/b/1/2", "/b/1",
		"a//1", "a/b/99999999999999999999", "a b/c/1"} {
		if f, err := fence.Parse(bad); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: got %v, %v, want ErrInvalid", bad, f, err)
		}
	}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	head := map[string]string{}
	set := func(k, v string) { head[k] = v }
	get := func(k string) string { return head[k] }
	for _, m := range []fence.Message{{Fence: lease("a", 7), Seq: 9}, {Fence: lease("a", 7)}} {
		clear(head)
		m.Set(set)
		if got, err := fence.ReadMessage(get); err != nil || got != m {
			t.Errorf("got %v, %v, want %v", got, err, m)
		}
	}
	head["tenure-seq"] = "0"
	if _, err := fence.ReadMessage(get); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("number 0: %v", err)
	}
	clear(head)
	if _, err := fence.ReadMessage(get); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no fence: %v", err)
	}
}

// storageFunc is a Storage whose Raise is a function.
type storageFunc struct {
	fence.Storage
	raise func()
}

func (s storageFunc) Raise(ctx context.Context, resource string, f driver.Fence) (driver.Fence, error) {
	s.raise()
	return s.Storage.Raise(ctx, resource, f)
}

// If a Storage, a function in Options or an effect ends its goroutine, higher tokens do not wait
// for it.
func TestMarkGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exit, memory := true, &fence.Memory{}
		leave := func() {
			if exit {
				runtime.Goexit()
			}
		}
		m := fence.NewMark(storageFunc{memory, leave}, &fence.Options{OnRefused: func(*fence.RefusedError) { runtime.Goexit() },
			MayWrite: anyShard})
		do := func(token driver.Token, effect func()) {
			var done sync.WaitGroup
			done.Go(func() {
				_ = m.Do(t.Context(), "r", lease("a", token), func(context.Context) error { effect(); return nil })
			})
			done.Wait()
		}
		do(3, func() { t.Error("an effect ran") })
		exit = false
		do(4, func() { runtime.Goexit() })
		do(2, func() { t.Error("an effect ran") }) // refused
		if err := m.Seal(t.Context(), "r", lease("b", 5)); err != nil {
			t.Error(err)
		}
	})
}
