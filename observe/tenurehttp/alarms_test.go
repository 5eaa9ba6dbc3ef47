package tenurehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/observe/tenurehttp"
	"github.com/tenure-go/tenure/sharding"
)

const ttl = time.Second

// alarms lists the alarms that docs/operations.md recommends, and for each alarm a fault that it
// must report.
var alarms = map[string]func(*world){
	"unowned":         (*world).unowned,
	"quarantined":     (*world).quarantined,
	"untrusted":       (*world).trusted,
	"stuck":           (*world).stuck,
	"in trouble":      (*world).troubled,
	"halted":          (*world).halted,
	"refused":         (*world).refused,
	"slow heartbeats": (*world).slowHeartbeats,
	"lag":             (*world).lag,
	"effects":         (*world).waiting,
}

func TestAlarms(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Alarms")
	section, _, _ = strings.Cut(section, "\n## ")
	var named []string
	for _, row := range regexp.MustCompile(`(?m)^\| \[(.+?)\]\(#`).FindAllStringSubmatch(section, -1) {
		named = append(named, row[1])
	}
	if len(named) != len(alarms) {
		t.Errorf("the page names the alarms %q, and there are tests of %d", named, len(alarms))
	}
	for _, name := range named {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := alarms[name]
			if test == nil {
				t.Fatal("no test of this alarm")
			}
			synctest.Test(t, func(t *testing.T) { test(&world{T: t, store: memory.New()}) })
		})
	}
}

// world is a store and the processes that use it, in fake time.
type world struct {
	*testing.T
	store *memory.Store
}

// process is one member, and the metrics and pages that its operator watches.
type process struct {
	*core.Elector
	p       *world
	link    *kvfault.Link
	backend core.Backend
	refused atomic.Int64
	slow    atomic.Int64 // heartbeats slower than TTL/6
	stop    context.CancelFunc
	done    chan struct{}
}

func (p *world) start(node string, shards ...string) *process {
	return p.startWith(node, func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }, shards...)
}

func (p *world) startWith(node string, h core.Handler, shards ...string) *process {
	p.Helper()
	x := &process{p: p, link: &kvfault.Link{}, done: make(chan struct{})}
	var err error
	if x.backend, err = memory.Open(p.Context(), p.store, "plant", &memory.Options{Wrap: x.link.Wrap}); err != nil {
		p.Fatal(err)
	}
	o := &core.Options{Node: node, TTL: ttl, DrainBudget: 2 * ttl, CallTimeout: ttl, BackoffMax: 10 * ttl,
		Logger: slog.New(slog.DiscardHandler)}
	o.Hooks.OnEvent = func(e core.Event) {
		if e.Kind == core.WriteRefused {
			x.refused.Add(1)
		}
	}
	o.Hooks.OnCall = func(c core.Call) {
		if c.Kind == "beat" && c.Took > ttl/6 {
			x.slow.Add(1)
		}
	}
	if x.Elector, err = core.NewElector(x.backend, o); err != nil {
		p.Fatal(err)
	}
	if len(shards) > 0 {
		if err := x.Contend(h, shards...); err != nil {
			p.Fatal(err)
		}
	}
	var ctx context.Context
	ctx, x.stop = context.WithCancel(context.Background())
	go func() {
		defer close(x.done)
		_ = x.Run(ctx) // some processes are made to fail
	}()
	p.Cleanup(func() { x.link.Heal(); x.end() })
	return x
}

func (x *process) end() {
	x.stop()
	<-x.done
	if err := x.backend.Close(); err != nil {
		x.p.Error(err)
	}
}

// crash cuts the process off, so that none of its calls reach the store.
func (x *process) crash() {
	x.link.Cut()
	x.stop()
}

func (x *process) view() tenurehttp.View {
	return get[tenurehttp.View](x.p.T, tenurehttp.Handler(x.Elector, nil), "/view", 200)
}

// lasts reports whether, within half a minute, an alarm's condition holds for longer than the given
// time.
func lasts(d time.Duration, firing func() bool) bool {
	since := time.Now()
	for begun := since; time.Since(begun) < 30*ttl; time.Sleep(ttl / 20) {
		synctest.Wait()
		if !firing() {
			since = time.Now()
		} else if time.Since(since) > d {
			return true
		}
	}
	return false
}

// becomes waits up to a minute for a condition.
func (p *world) becomes(what string, cond func() bool) {
	p.Helper()
	for range 1200 {
		synctest.Wait()
		if cond() {
			return
		}
		time.Sleep(ttl / 20)
	}
	p.Fatalf("not within a minute: %s", what)
}

// quarantined makes a shard kill its owner once, which is enough for a quarantine in these tests.
func (p *world) quarantined() {
	manage := func(node string) (x *process, stop func()) {
		x = p.start(node)
		m, err := sharding.NewManager(x.backend, x.Elector, func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil },
			&sharding.Options{Shards: []string{"eu", "us"}, Quarantine: sharding.Quarantine{Deaths: 1, For: time.Minute}})
		if err != nil {
			p.Fatal(err)
		}
		ctx, cancel := context.WithCancel(p.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = m.Run(ctx) }()
		return x, func() { cancel(); <-ended }
	}
	a, stopA := manage("a")
	b, stopB := manage("b")
	firing := func() bool { return b.view().Quarantined > 0 }
	p.becomes("each owns one", func() bool { v := b.view(); return len(v.Leases) > 0 && v.Unowned == 0 && len(v.Members) == 2 })
	if lasts(2*ttl, firing) {
		p.Fatal("it fires in a sound cluster")
	}
	a.crash()
	stopA()
	p.becomes("it fires", firing)
	v := b.view()
	i := slices.IndexFunc(v.Shards, func(s tenurehttp.Shard) bool { return s.Aside != "" })
	if i < 0 || v.Unowned != 0 || v.Quarantined != 1 || v.Shards[i].Node != "" || !v.Shards[i].AsideUntil.After(time.Now()) {
		p.Errorf("got %+v", v)
	}
	p.Log("it ends by time")
	time.Sleep(time.Minute)
	p.becomes("it clears", func() bool { return !firing() && b.view().Unowned == 0 })
	stopB()
}

func (p *world) unowned() {
	a, b := p.start("a", "eu", "us"), p.start("b", "us")
	firing := func() bool { return b.view().Unowned > 0 }
	p.becomes("both own", func() bool { v := b.view(); return len(v.Members) == 2 && len(v.Shards) == 2 && v.Unowned == 0 })
	if lasts(2*ttl, firing) {
		p.Fatal("it fires in a sound cluster")
	}

	p.Log("the only member that contends for eu dies, and no eviction comes through")
	b.link.Set(kvfault.Write, kvfault.Fail)
	a.crash()
	if !lasts(2*ttl, firing) {
		p.Errorf("a dead member that nobody evicts: %+v", b.view())
	}
	if v := b.view(); len(v.Members) != 2 || !v.Members[0].Silent || v.Members[1].Silent {
		p.Errorf("members %+v", v.Members)
	}
	b.link.Heal()
	p.becomes("a is evicted", func() bool { return len(b.view().Members) == 1 })
	if !lasts(2*ttl, firing) {
		p.Errorf("nobody contends for eu: %+v", b.view())
	}

	p.Log("another member contends, with a Manager, and leaves in order at last")
	c := p.start("c")
	m, err := sharding.NewManager(c.backend, c.Elector, func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil },
		&sharding.Options{Shards: []string{"eu"}})
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.Context())
	managed := make(chan error, 1)
	go func() { managed <- m.Run(ctx) }()
	p.becomes("it clears", func() bool { return !firing() })
	p.becomes("the assigner's shard is owned", func() bool {
		return slices.ContainsFunc(b.view().Shards, func(s tenurehttp.Shard) bool { return s.Shard[0] == '_' && s.Node == "c" })
	})
	if err := b.Contend(func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }, "eu"); err != nil {
		p.Fatal(err)
	}
	cancel()
	if err := <-managed; err != nil {
		p.Error(err)
	}
	c.stop()
	p.becomes("b owns eu", func() bool { v := b.view(); return len(v.Members) == 1 && v.Reserved > 0 })
	if lasts(2*ttl, firing) {
		p.Errorf("it fires after a member left in order: %+v", b.view())
	}
}

func (p *world) trusted() {
	a := p.start("a", "eu")
	firing := func() bool { return !a.view().Trusted }
	p.becomes("a owns", func() bool { return len(a.view().Leases) == 1 })
	if lasts(2*ttl, firing) {
		p.Fatal("it fires in a sound cluster")
	}
	a.link.Cut()
	if !lasts(2*ttl, firing) {
		p.Error("the store is away")
	}
	if v := a.view(); v.Unowned != 1 {
		p.Errorf("its only member may not serve, and %+v says that its shard is served", v)
	}
	a.link.Heal()
	p.becomes("it clears", func() bool { return !firing() && a.view().Unowned == 0 })
}

func (p *world) stuck() {
	hang := make(chan struct{})
	a := p.startWith("a", func(context.Context, *core.Lease) error { <-hang; return nil }, "eu")
	p.Cleanup(func() {
		select {
		case <-hang:
		default:
			close(hang)
		}
	})
	firing := func() bool { return len(a.view().Stuck) > 0 }
	p.becomes("a owns", func() bool { return len(a.view().Leases) == 1 })
	if lasts(2*ttl, firing) {
		p.Fatal("it fires while the handler is not asked to stop")
	}
	ctx, cancel := context.WithTimeout(p.Context(), 10*ttl)
	defer cancel()
	if err := a.Withdraw(ctx, "eu"); !errors.Is(err, core.ErrStuck) {
		p.Errorf("withdraw: %v", err)
	}
	if !firing() {
		p.Error("a handler did not return")
	}
	get[tenurehttp.Status](p.T, tenurehttp.Handler(a.Elector, nil), "/healthz", 503)
	close(hang)
	p.becomes("it clears", func() bool { return !firing() })
	get[tenurehttp.Status](p.T, tenurehttp.Handler(a.Elector, nil), "/healthz", 200)
}

func (p *world) troubled() {
	committing := func(ctx context.Context, l *core.Lease) error {
		for ctx.Err() == nil {
			_, _ = l.Append(l.Context(), []byte("x"))
			time.Sleep(ttl / 10)
		}
		return nil
	}
	a, b := p.startWith("a", committing, "eu"), p.start("b", "us")
	firing := func() bool { return a.view().Trouble != "" }
	p.becomes("a owns", func() bool { return len(a.view().Leases) == 1 && len(b.view().Members) == 2 })
	if lasts(2*ttl, firing) {
		p.Fatal("it fires in a sound cluster")
	}
	a.link.SetError(kvfault.Write, fmt.Errorf("tenure: %w: %w: NOPERM", core.ErrRetry, core.ErrDenied))
	p.becomes("it fires", firing)
	if s := get[tenurehttp.Status](p.T, tenurehttp.Handler(a.Elector, nil), "/healthz", 503); !strings.Contains(s.Reasons[0], "NOPERM") {
		p.Errorf("/healthz says %+v", s)
	}
	get[tenurehttp.Status](p.T, tenurehttp.Handler(a.Elector, nil), "/livez", 200)
	if v := a.view(); v.Members[0].Trouble != v.Trouble || !strings.HasPrefix(v.Trouble, "commit refused since ") {
		p.Errorf("the view says %+v", v)
	}
	a.link.Heal()
	p.becomes("it clears", func() bool { return !firing() })
	get[tenurehttp.Status](p.T, tenurehttp.Handler(a.Elector, nil), "/healthz", 200)
	a.link.SetError(kvfault.Write, fmt.Errorf("tenure: %w: %w: NOPERM", core.ErrRetry, core.ErrDenied))
	p.becomes("it fires again", firing)
	a.link.Heal()
	p.becomes("b sees none", func() bool { return len(b.view().Members) == 2 && b.view().Members[0].Trouble == "" && !firing() })
}

func (p *world) halted() {
	a := p.start("a", "eu")
	p.becomes("a owns", func() bool { return len(a.view().Leases) == 1 })
	if a.view().Halted != "" {
		p.Fatal("it fires in a sound cluster")
	}
	p.store.Wipe()
	p.becomes("it fires", func() bool { return a.view().Halted != "" })
	if v := a.view(); v.Unowned != 1 || v.Trusted {
		p.Errorf("the only member is halted, and %+v says that its shard is served", v)
	}
	get[tenurehttp.Status](p.T, tenurehttp.Handler(a.Elector, nil), "/readyz", 503)
	if s := get[tenurehttp.Status](p.T, tenurehttp.Handler(a.Elector, nil), "/healthz", 503); !strings.Contains(s.Reasons[0], "halted: ") {
		p.Errorf("/healthz of a halted member: %+v", s)
	}
	// A restart would forget the store's answers, which may be the only sign of the change.
	get[tenurehttp.Status](p.T, tenurehttp.Handler(a.Elector, nil), "/livez", 200)
	a.stop()
	<-a.done
	again := p.start("a", "eu")
	p.becomes("a new process owns", func() bool { return len(again.view().Leases) == 1 })
	if again.view().Halted != "" {
		p.Error("it does not clear")
	}
}

func (p *world) refused() {
	leases := make(chan *core.Lease, 2)
	a := p.startWith("a", func(ctx context.Context, l *core.Lease) error { leases <- l; <-ctx.Done(); return nil }, "eu")
	lease := <-leases
	if _, err := lease.Append(p.Context(), nil); err != nil || a.refused.Load() != 0 {
		p.Fatalf("%v, and %d refused in a sound cluster", err, a.refused.Load())
	}
	a.link.Set(kvfault.Watch, kvfault.DropReply) // a does not hear that it was superseded
	thief, err := memory.Open(p.Context(), p.store, "plant", nil)
	if err != nil {
		p.Fatal(err)
	}
	defer thief.Close()
	s, err := thief.Join(p.Context(), driver.Member{Session: "thief", Node: "thief", TTL: ttl})
	if err != nil {
		p.Fatal(err)
	}
	f := lease.Fence()
	claim := []driver.Claim{{Shard: f.Shard, Seen: driver.Owner{Session: f.Session, Token: f.Token}, Preempt: true}}
	if got, err := s.Acquire(p.Context(), claim); err != nil || got[0].Err != nil {
		p.Fatal(err, got)
	}
	if _, err := lease.Append(p.Context(), nil); !errors.Is(err, core.ErrFenced) {
		p.Errorf("append of a superseded lease: %v", err)
	}
	p.becomes("it fires", func() bool { return a.refused.Load() == 1 })
	a.link.Heal()
	if err := s.Close(p.Context()); err != nil {
		p.Error(err)
	}
	time.Sleep(10 * ttl)
	if n := a.refused.Load(); n != 1 {
		p.Errorf("it does not clear: %d refused", n)
	}
}

func (p *world) slowHeartbeats() {
	a := p.start("a", "eu")
	p.becomes("a owns", func() bool { return len(a.view().Leases) == 1 })
	time.Sleep(10 * ttl)
	if n := a.slow.Load(); n != 0 {
		p.Fatalf("%d in a sound cluster", n)
	}
	a.link.Set(kvfault.Heartbeat, kvfault.HoldRequest)
	for range 5 {
		if err := a.link.AwaitHeld(p.Context(), 1); err != nil {
			p.Fatal(err)
		}
		time.Sleep(ttl / 5)
		a.link.Deliver()
	}
	a.link.Heal()
	p.becomes("it fires", func() bool { return a.slow.Load() >= 5 })
	time.Sleep(ttl)
	n := a.slow.Load()
	time.Sleep(10 * ttl)
	if a.slow.Load() != n {
		p.Errorf("it does not clear: %d, then %d", n, a.slow.Load())
	}
}

func (p *world) lag() {
	leases := make(chan *core.Lease, 2)
	p.startWith("a", func(ctx context.Context, l *core.Lease) error { leases <- l; <-ctx.Done(); return nil }, "eu")
	lease := <-leases
	b, err := memory.Open(p.Context(), p.store, "plant", nil)
	if err != nil {
		p.Fatal(err)
	}
	var broken atomic.Bool
	t, err := follower.NewTailer(b, nil)
	if err != nil {
		p.Fatal(err)
	}
	apply := func(context.Context, follower.Batch) error {
		if broken.Load() {
			return io.ErrClosedPipe
		}
		return nil
	}
	if err := t.Follow("bookings", follower.Memory(apply, nil), "eu"); err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.Context())
	ended := make(chan error, 1)
	go func() { ended <- t.Run(ctx) }()
	firing := func() bool { return t.Fresh("eu", 2*ttl) != nil }
	p.becomes("it follows", func() bool { return !firing() })
	if lasts(2*ttl, firing) {
		p.Fatal("it fires in a sound cluster")
	}
	broken.Store(true)
	if _, err := lease.Append(p.Context(), []byte("x")); err != nil {
		p.Fatal(err)
	}
	if !lasts(2*ttl, firing) {
		p.Error("the Applier fails")
	}
	broken.Store(false)
	p.becomes("it clears", func() bool { return !firing() })
	cancel()
	<-ended
	if err := b.Close(); err != nil {
		p.Error(err)
	}
}
