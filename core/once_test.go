package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

type onceCaller struct {
	w    *world
	link kvfault.Link
	tap  *tap
	o    Options
}

func (w *world) onceCaller(node string) *onceCaller {
	w.Helper()
	c := &onceCaller{w: w, o: Options{Node: node, TTL: ttl, LockDir: "none", Logger: slog.New(slog.DiscardHandler)}}
	b, err := memory.Open(w.Context(), w.store, "test", &memory.Options{Wrap: c.link.Wrap})
	w.must(err)
	c.tap = &tap{Backend: b}
	w.Cleanup(func() { w.must(b.Close()) })
	return c
}

func (c *onceCaller) run(job func(ctx context.Context, l *Lease) ([]byte, error)) ([]byte, error) {
	ctx, cancel := context.WithTimeout(c.w.Context(), 100*ttl)
	defer cancel()
	return RunOnce(ctx, c.tap, "job", job, &c.o)
}

// start calls RunOnce in a goroutine. The channel gets "result, error".
func (c *onceCaller) start(job func(ctx context.Context, l *Lease) ([]byte, error)) <-chan string {
	got := make(chan string, 1)
	go func() {
		result, err := c.run(job)
		got <- fmt.Sprintf("%s, %v", result, err)
	}()
	return got
}

func TestRunOnce(t *testing.T) {
	for _, want := range []string{"version 7", ""} {
		t.Run("result "+want, func(t *testing.T) {
			bubble(t, func(w *world) {
				boom := errors.New("boom")
				n, begun := 0, time.Now()
				a := w.onceCaller("a")
				a.o.LameDuck = time.Hour
				got, err := a.run(func(context.Context, *Lease) ([]byte, error) {
					if n++; n < 3 {
						return []byte("wrong"), boom
					}
					return []byte(want), nil
				})
				if string(got) != want || err != nil || n != 3 || time.Since(begun) > 50*ttl {
					w.Errorf("%q, %v, after %d runs and %v", got, err, n, time.Since(begun))
				}
				b := w.onceCaller("b")
				joins := 0
				b.tap.onReply(func(kind string, do func()) { joins++; do() })
				got, err = b.run(func(context.Context, *Lease) ([]byte, error) { n++; return []byte("again"), nil })
				if string(got) != want || err != nil || n != 3 || joins != 0 {
					w.Errorf("later: %q, %v, after %d runs and %d calls, want the first result for one read", got, err, n, joins)
				}
				m := w.member("c")
				w.must(m.Contend(func(ctx context.Context, _ *Lease) error { <-ctx.Done(); return nil }, "other"))
				w.eventually("the other shard is owned", func() bool { o, _ := m.View().Owner("other"); return o.Node == "c" })
				if shards, reserved := m.View().Unowned(); shards != 0 || reserved != 1 {
					w.Errorf("%d shards are unowned, and %d reserved ones, want none and 1", shards, reserved)
				}
			})
		})
	}
	bubble(t, func(w *world) {
		b := w.onceCaller("a").tap
		job := func(context.Context, *Lease) ([]byte, error) { return nil, nil }
		for what, call := range map[string]func() ([]byte, error){
			"no name":     func() ([]byte, error) { return RunOnce(w.Context(), b, "", job, nil) },
			"a long name": func() ([]byte, error) { return RunOnce(w.Context(), b, strings.Repeat("x", 123), job, nil) },
			"no job":      func() ([]byte, error) { return RunOnce(w.Context(), b, "x", nil, nil) },
			"no backend":  func() ([]byte, error) { return RunOnce(w.Context(), nil, "x", job, nil) },
			"options":     func() ([]byte, error) { return RunOnce(w.Context(), b, "x", job, &Options{TTL: -1}) },
		} {
			if _, err := call(); !errors.Is(err, ErrInvalid) {
				w.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
	})
}

// Concurrent callers, two of them in one process with the same options, share one run.
func TestRunOnceConcurrently(t *testing.T) {
	bubble(t, func(w *world) {
		var n atomic.Int32
		begun := make(chan struct{}, 10)
		job := func(context.Context, *Lease) ([]byte, error) {
			begun <- struct{}{}
			time.Sleep(5 * ttl)
			return fmt.Appendf(nil, "run %d", n.Add(1)), nil
		}
		a, b := w.onceCaller("a"), w.onceCaller("b")
		a.o.Supersede, b.o.Supersede = true, true
		first := a.start(job)
		<-begun
		for _, call := range []<-chan string{first, a.start(job), b.start(job)} {
			if got := <-call; got != "run 1, <nil>" || n.Load() != 1 {
				w.Errorf("%s, after %d runs", got, n.Load())
			}
		}
	})
}

// A process that is cut off during its job is replaced. The late result is not recorded, and the
// caller gets the result of the other process.
func TestRunOnceTakeover(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.onceCaller("a"), w.onceCaller("b")
		begun, goOn := make(chan struct{}), make(chan struct{})
		first := a.start(func(_ context.Context, l *Lease) ([]byte, error) {
			close(begun)
			<-goOn // ignores its context
			if _, err := l.Append(l.Context(), []byte("late")); !errors.Is(err, ErrLost) {
				w.Errorf("a commit of the former run: %v, want ErrLost", err)
			}
			return []byte("late"), nil
		})
		<-begun
		a.link.Cut()
		second := b.start(func(context.Context, *Lease) ([]byte, error) { return []byte("second"), nil })
		if got := <-second; got != "second, <nil>" {
			w.Errorf("the next caller: %s", got)
		}
		close(goOn)
		a.link.Heal()
		if got := <-first; got != "second, <nil>" {
			w.Errorf("the former one: %s", got)
		}
	})
}

func TestRunOnceWithoutLease(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.onceCaller("a"), w.onceCaller("b")
		a.o.Eligible = func(context.Context) error { return errors.New("old version") }
		waits := a.start(func(context.Context, *Lease) ([]byte, error) { return []byte("a"), nil })
		time.Sleep(3 * ttl)
		b.start(func(context.Context, *Lease) ([]byte, error) { return []byte("b"), nil })
		if got := <-waits; got != "b, <nil>" {
			w.Errorf("the caller that is not eligible: %s", got)
		}
	})
}

// If the store refuses a result, RunOnce immediately returns an error, and the job does not run
// again.
func TestRunOnceTooLarge(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.onceCaller("a")
		n := 0
		got, err := a.run(func(_ context.Context, l *Lease) ([]byte, error) {
			n++
			return bytes.Repeat([]byte("x"), l.Limits().WriteBytes), nil
		})
		if got != nil || !errors.Is(err, ErrTooLarge) || n != 1 {
			w.Errorf("%d bytes, %v, after %d runs", len(got), err, n)
		}
		got, err = a.run(func(context.Context, *Lease) ([]byte, error) { return []byte("small"), nil })
		if string(got) != "small" || err != nil {
			w.Errorf("the next call: %q, %v", got, err)
		}
	})
}

// A job that fails permanently has failed for every caller, including waiting callers, later
// callers and callers that are not eligible.
func TestRunOnceFailsForAll(t *testing.T) {
	bubble(t, func(w *world) {
		a, b, c := w.onceCaller("a"), w.onceCaller("b"), w.onceCaller("c")
		c.o.Eligible = func(context.Context) error { return errors.New("old version") }
		boom := errors.New("column x is there already")
		var n atomic.Int32
		begun := make(chan struct{})
		job := func(context.Context, *Lease) ([]byte, error) {
			if n.Add(1) > 1 {
				return []byte("a second run"), nil
			}
			close(begun)
			time.Sleep(5 * ttl)
			return []byte("half"), fmt.Errorf("step 3: %w", &PermanentError{Err: boom})
		}
		errs := make(chan error, 3)
		call := func(c *onceCaller) {
			got, err := c.run(job)
			if p, ok := errors.AsType[*PermanentError](err); !ok || got != nil || !strings.Contains(err.Error(), `"job"`) ||
				!strings.Contains(err.Error(), "step 3: column x is there already") || p.Err == nil {
				w.Errorf("%s: %q, %v", c.o.Node, got, err)
			}
			errs <- err
		}
		go call(a)
		<-begun
		go call(b)
		go call(c)
		boomed := 0
		for range 3 {
			if errors.Is(<-errs, boom) {
				boomed++
			}
		}
		reads := 0
		d := w.onceCaller("d")
		d.tap.onReply(func(_ string, do func()) { reads++; do() })
		call(d)
		if boomed != 1 || n.Load() != 1 || reads > 0 {
			w.Errorf("%d callers have the job's own error, after %d runs; a later one asked for a lease with %d calls", boomed, n.Load(), reads)
		}
	})
}

// The recorded text is limited. A record that is not a result is not returned as one.
func TestRunOnceRecords(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.onceCaller("a")
		_, err := a.run(func(context.Context, *Lease) ([]byte, error) {
			return nil, &PermanentError{Err: errors.New(strings.Repeat("x\n", 1<<20))}
		})
		_, later := a.run(nothing)
		if !errors.As(err, new(*PermanentError)) || !errors.As(later, new(*PermanentError)) || len(later.Error()) > maxFailure+100 {
			w.Errorf("%d bytes, then %d", len(fmt.Sprint(err)), len(fmt.Sprint(later)))
		}
		m := w.member("b")
		w.must(m.Contend(func(ctx context.Context, l *Lease) error {
			if item, err := l.Get(ctx, onceKey); err != nil || len(item.Value) > maxFailure+1 {
				w.Errorf("a record of %d bytes, %v", len(item.Value), err)
			}
			_, err := l.Commit(ctx, Put(onceKey, []byte("?")))
			return err
		}, oncePrefix+"job"))
		w.eventually("it is damaged", func() bool { _, err := a.run(nothing); return errors.Is(err, ErrDamaged) })
	})
}

func nothing(context.Context, *Lease) ([]byte, error) { return nil, nil }

// When ctx ends, the call returns the job's last error. If the job finishes nevertheless, it is
// done.
func TestRunOnceEndsWithContext(t *testing.T) {
	bubble(t, func(w *world) {
		boom := errors.New("boom")
		a := w.onceCaller("a")
		_, err := a.run(func(context.Context, *Lease) ([]byte, error) { return nil, boom })
		if !errors.Is(err, boom) || !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("%v, want both that time was up and what failed", err)
		}
		got, err := a.run(func(ctx context.Context, _ *Lease) ([]byte, error) {
			<-ctx.Done()
			return []byte("just in time"), nil
		})
		if string(got) != "just in time" || err != nil {
			w.Errorf("%q, %v", got, err)
		}
	})
}

// An unreachable store delays a call, and a closed backend ends the call.
func TestRunOnceOutage(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.onceCaller("a")
		a.link.Cut()
		var heal sync.WaitGroup
		heal.Go(func() { time.Sleep(5 * ttl); a.link.Heal() })
		got, err := a.run(func(context.Context, *Lease) ([]byte, error) { return []byte("done"), nil })
		if string(got) != "done" || err != nil {
			w.Errorf("%q, %v", got, err)
		}
		heal.Wait()
		w.must(a.tap.Backend.Close())
		if _, err := a.run(func(context.Context, *Lease) ([]byte, error) { return nil, nil }); !errors.Is(err, ErrClosed) {
			w.Errorf("%v, want ErrClosed", err)
		}
	})
}
