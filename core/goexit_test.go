package core

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/goexit"
)

// A handler that ends its goroutine, as t.FailNow does, has failed. Its commits are settled, and
// its shard is served again.
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
				if got := a.said("return s"); len(got) != 1 || !strings.Contains(got[0], goexit.Err.Error()) {
					w.Errorf("hooks say %q", got)
				}
			})
		})
	}
}

// If there is a standby, the standby gets the shard during the back-off.
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

// If Options.Eligible or Options.Trouble ends its goroutine, that counts as an answer, and the
// function is called again.
func TestEligibleGoexit(t *testing.T) {
	bubble(t, func(w *world) {
		function := func() func(context.Context) error {
			var asked atomic.Int32
			return func(context.Context) error {
				if asked.Add(1) < 5 {
					runtime.Goexit()
				}
				return nil
			}
		}
		a := w.member("a", func(o *Options) { o.Eligible, o.Trouble = function(), function() })
		var h leases
		w.must(a.Contend(h.hold, "s"))
		w.eventually("the reasons are known", func() bool {
			v := a.View()
			return strings.Contains(v.Ineligible, "runtime.Goexit") && strings.Contains(v.Trouble, "runtime.Goexit")
		})
		h.await(w, 1)
		w.eventually("the trouble ends", func() bool { return a.View().Trouble == "" })
	})
}

// RunSingleton and RunOnce retry, and report the failure when their time is up.
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
				if err := call(ctx, c, func() error { runtime.Goexit(); return nil }); !errors.Is(err, goexit.Err) || !errors.Is(err, context.DeadlineExceeded) {
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

// A handler that panics ends the process. The stack trace contains the handler's frames.
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

// If hooks or a logger end their goroutine at every event, nothing is delayed and no event is lost.
// Run does not wait for them.
func TestHooksGoexit(t *testing.T) {
	for name, want := range map[string]map[string]int{
		"hooks": {"granted": 3, "started": 3, "returned": 3, "released": 3, "joined": 1, "asked to stop": 2, "revoked": 3,
			"OnCall": 9, "CallStart": 9, "Logger": 1},
		"logger": {"Logger": 4},
	} {
		t.Run(name, func(t *testing.T) { hooksGoexit(t, want) })
	}
}

func hooksGoexit(t *testing.T, want map[string]int) {
	bubble(t, func(w *world) {
		told := map[string]int{}
		var mu sync.Mutex
		exit := func(name string) {
			mu.Lock()
			told[name]++
			mu.Unlock()
			runtime.Goexit()
		}
		asked := func(name string) int {
			mu.Lock()
			defer mu.Unlock()
			return told[name]
		}
		m := w.member("a", func(o *Options) {
			o.Logger = slog.New(exits{slog.DiscardHandler, func() { exit("Logger") }})
			if len(want) == 1 {
				return
			}
			o.Hooks = Hooks{OnEvent: func(e Event) { exit(string(e.Kind)) }, OnCall: func(Call) { exit("OnCall") },
				CallStart: func(context.Context, Call) (context.Context, func(error)) { exit("CallStart"); return nil, nil }}
		})
		var served atomic.Int32
		w.must(m.Contend(func(ctx context.Context, l *Lease) error {
			if _, err := l.Append(ctx, nil); err != nil {
				return err
			}
			if served.Add(1) == 1 {
				return errors.New("the first one fails")
			}
			<-ctx.Done()
			return nil
		}, "s", "t"))
		w.eventually("both are served again", func() bool { return served.Load() >= 3 })
		if n := m.View(); len(n.Leases) == 0 {
			w.Error("no leases")
		}
		began := time.Now()
		w.must(m.end())
		if took := time.Since(began); took >= m.o.DrainBudget {
			w.Errorf("Run took %v to end", took)
		}
		for name, want := range want {
			if got := asked(name); got < want {
				w.Errorf("%s was called %d times, want %d or more", name, got, want)
			}
		}
	})
}

// If a function that CallStart returned ends its goroutine, no call is delayed.
func TestCallStartEndGoexit(t *testing.T) {
	bubble(t, func(w *world) {
		var ended atomic.Int32
		m := w.member("a", func(o *Options) {
			o.Hooks.CallStart = func(ctx context.Context, _ Call) (context.Context, func(error)) {
				return ctx, func(error) { ended.Add(1); runtime.Goexit() }
			}
		})
		var h leases
		w.must(m.Contend(h.hold, "s"))
		_, err := h.await(w, 1).Append(w.Context(), nil)
		w.must(err)
		time.Sleep(10 * ttl)
		if h.count() != 1 || ended.Load() < 10 {
			w.Errorf("%d leases, want 1; %d calls ended", h.count(), ended.Load())
		}
	})
}

// exits is a log handler that calls exit at each line.
type exits struct {
	slog.Handler
	exit func()
}

func (exits) Enabled(context.Context, slog.Level) bool { return true }

func (h exits) Handle(context.Context, slog.Record) error { h.exit(); return nil }

func (h exits) WithAttrs([]slog.Attr) slog.Handler { return h }
