package core

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A handler that ends its goroutine, as t.FailNow does, has failed: its shard is served again, and
// its commits are settled before.
func TestHandlerGoexit(t *testing.T) {
	for name, asked := range map[string]bool{"early": false, "asked to stop": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				a := w.member("a")
				var served atomic.Int32
				begun := make(chan struct{})
				w.must(a.Contend(func(ctx context.Context, l *Lease) error {
					if served.Add(1) > 1 {
						<-ctx.Done()
						return nil
					}
					close(begun)
					if asked {
						<-ctx.Done()
					}
					go func() { _, _ = l.Append(l.Context(), []byte("in flight")) }()
					runtime.Goexit()
					return nil
				}, "s"))
				<-begun
				if asked {
					w.must(a.Withdraw(w.Context(), "s"))
					w.must(a.Contend(func(ctx context.Context, _ *Lease) error { served.Add(1); <-ctx.Done(); return nil }, "s"))
				}
				w.eventually("the shard is served again", func() bool { return served.Load() == 2 })
				if got := a.said("return s"); len(got) != 1 || !strings.Contains(got[0], errExited.Error()) {
					w.Errorf("hooks say %q", got)
				}
			})
		})
	}
}

// The same with a member that stands by: it has the shard during the back-off.
func TestHandlerGoexitIsTakenOver(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.member("a", func(o *Options) { o.BackoffMin = time.Minute; o.BackoffMax = time.Minute })
		w.must(a.Contend(func(context.Context, *Lease) error { runtime.Goexit(); return nil }, "s"))
		w.eventually("the first one has failed", func() bool { return len(a.said("return s")) == 1 })
		var h leases
		w.must(w.member("b").Contend(h.hold, "s"))
		h.await(w, 1)
		time.Sleep(30 * time.Second)
		if h.count() != 1 || h.all[0].Err() != nil {
			w.Errorf("%d leases, the first one: %v", h.count(), h.all[0].Err())
		}
	})
}

// Options.Eligible that ends its goroutine is an answer; it is asked again.
func TestEligibleGoexit(t *testing.T) {
	bubble(t, func(w *world) {
		var asked atomic.Int32
		a := w.member("a", func(o *Options) {
			o.Eligible = func(context.Context) error {
				if asked.Add(1) < 5 {
					runtime.Goexit()
				}
				return nil
			}
		})
		var h leases
		w.must(a.Contend(h.hold, "s"))
		w.eventually("the reason is known", func() bool { return strings.Contains(a.View().Ineligible, "runtime.Goexit") })
		h.await(w, 1)
	})
}

// RunSingleton and RunOnce try again, and say so when their time is up.
func TestGoexitOfJobs(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *onceCaller, f func() error) error{
		"RunSingleton": func(ctx context.Context, c *onceCaller, f func() error) error {
			return RunSingleton(ctx, c.tap, "job", func(context.Context, *Lease) error { return f() }, &c.o)
		},
		"RunOnce": func(ctx context.Context, c *onceCaller, f func() error) error {
			_, err := RunOnce(ctx, c.tap, "job", func(context.Context, *Lease) ([]byte, error) { return nil, f() }, &c.o)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				c := w.onceCaller("a")
				ctx, cancel := context.WithTimeout(w.Context(), 10*ttl)
				defer cancel()
				if err := call(ctx, c, func() error { runtime.Goexit(); return nil }); !errors.Is(err, errExited) || !errors.Is(err, context.DeadlineExceeded) {
					w.Errorf("%v, want both that time was up and what failed", err)
				}
				n := 0
				w.must(call(w.Context(), c, func() error {
					if n++; n < 3 {
						runtime.Goexit()
					}
					return nil
				}))
			})
		})
	}
}

// A handler that panics ends the process, with its frames in the trace.
func TestHandlerPanics(t *testing.T) {
	const child = "TENURE_TEST_PANIC"
	if os.Getenv(child) != "" {
		bubble(t, func(w *world) {
			w.must(w.member("a").Contend(theHandlerThatPanics, "s"))
			time.Sleep(time.Minute)
		})
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHandlerPanics$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"panic: the handler's own", "theHandlerThatPanics"} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, without %q:\n%s", err, want, out)
		}
	}
}

func theHandlerThatPanics(context.Context, *Lease) error { panic("the handler's own") }
