package outage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/suite"
	"github.com/tenure-go/tenure/internal/proof/system"
)

// Fresh tests that a new member takes over from a member that crashes. In the first case, the new
// member starts after the crash, as when a lone process restarts. In the second case, the new
// member joins just before the crash. In both cases, the new member must own the shard within a TTL
// plus an allowance (V1). The allowance is a fifth of the TTL plus the time to open the store. If
// the store answers slowly, the allowance is longer. Concurrent reads detect a machine that is too
// slow for a verdict. The TTL is one second, or the value of the flag -system.ttl.
func Fresh(t *testing.T, c system.Config) {
	t.Helper()
	servers.Short(t)
	ttl := system.TTL(time.Second)
	store := c.Store(suite.Wrap(t), 1)
	options, err := json.Marshal(store.Options)
	if err != nil {
		t.Fatal(err)
	}
	open := func() driver.Backend {
		b, err := c.Opener.Open(t.Context(), func(into any) error { return json.Unmarshal(options, into) })
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	machine := ample.Beside(t, ttl/20, reads(t, open()))
	for _, x := range []struct {
		name   string
		before time.Duration // how long before the crash the new member starts; 0: after the crash
	}{
		{"a lone process restarts", 0},
		{"joined just before", 3 * ttl / 100},
	} {
		shard := fmt.Sprintf("fresh%d", x.before)
		first := startLone(t, open(), ttl, shard)
		first.owns(t)
		var second *lone
		if x.before > 0 {
			second = startLone(t, open(), ttl, shard)
			second.joins(t)
			time.Sleep(x.before)
		}
		crashed := time.Now()
		first.crash(t)
		var opening time.Duration
		if second == nil {
			crashed = time.Now()
			b := open()
			opening = time.Since(crashed)
			second = startLone(t, b, ttl, shard)
		}
		took := second.owns(t).Sub(crashed)
		slowest := second.slowest()
		t.Logf("%s: TTL %v, took over after %v, of which %v to open the store; slowest call %v", x.name, ttl,
			took.Round(time.Millisecond),
			opening.Round(time.Millisecond), slowest)
		machine.AtMost(x.name+": the takeover", took, opening+ttl+ttl/5+5*slowest)
		second.crash(t)
	}
}

// reads returns a no-op for a Gauge, which reads through b. The test uses b for no other purpose,
// and closes it at the end.
func reads(t *testing.T, b driver.Backend) func() {
	t.Cleanup(func() { _ = b.Close() }) // its opener may close it too
	return func() { _, _ = b.ReadLog(t.Context(), "beside", 0, 0) }
}

// lone is a member that the store sees as a separate process.
type lone struct {
	backend driver.Backend
	granted chan time.Time
	joined  chan struct{}
	done    chan error

	mu   sync.Mutex
	slow time.Duration
}

func startLone(t *testing.T, b driver.Backend, ttl time.Duration, shard string) *lone {
	t.Helper()
	p := &lone{backend: b, granted: make(chan time.Time, 1), joined: make(chan struct{}, 1), done: make(chan error, 1)}
	e, err := core.NewElector(b, &core.Options{Logger: slog.New(slog.DiscardHandler), TTL: ttl, Hooks: core.Hooks{
		OnEvent: func(ev core.Event) {
			if ev.Kind == core.SessionJoined {
				select {
				case p.joined <- struct{}{}:
				default:
				}
			}
		},
		OnCall: func(call core.Call) {
			if call.Kind != "observe" {
				p.mu.Lock()
				p.slow = max(p.slow, call.Took)
				p.mu.Unlock()
			}
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	err = e.Contend(func(ctx context.Context, _ *core.Lease) error {
		select {
		case p.granted <- time.Now():
		default:
		}
		<-ctx.Done()
		return nil
	}, shard)
	if err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- e.Run(context.WithoutCancel(t.Context())) }()
	return p
}

// The result is the time at which the process's handler was called.
func (p *lone) owns(t *testing.T) time.Time {
	t.Helper()
	select {
	case at := <-p.granted:
		return at
	case <-time.After(ample.Time):
		t.Fatal("nobody owns the shard")
		return time.Time{}
	}
}

func (p *lone) joins(t *testing.T) {
	t.Helper()
	select {
	case <-p.joined:
	case <-time.After(ample.Time):
		t.Fatal("the member does not join")
	}
}

func (p *lone) slowest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow
}

// crash closes the process's backend. The process's session and leases stay in the store.
func (p *lone) crash(t *testing.T) {
	t.Helper()
	if err := p.backend.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-p.done:
		if !errors.Is(err, core.ErrClosed) {
			t.Errorf("the member ended with %v", err)
		}
	case <-time.After(ample.Time):
		t.Error("the member does not end with its backend")
	}
}
