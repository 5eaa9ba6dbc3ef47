package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/internal/proof/loglines"
)

const (
	ttl      = time.Second
	interval = 200 * time.Millisecond
)

// world is a store and its members, in a bubble of fake time. If a goroutine is left at the end,
// the test fails.
type world struct {
	*testing.T
	store    *memory.Store
	members  []*member
	watchdog time.Duration // of the electors
	lameDuck time.Duration
	wrap     func(core.Backend) core.Backend // if not nil

	mu      sync.Mutex
	holders map[string][]string // by shard: the nodes that run its handler
	grants  map[string]int
	errs    []error
}

func bubble(t *testing.T, f func(w *world)) {
	t.Parallel()
	bubbleAlone(t, f)
}

// bubbleAlone runs a bubble while no other test runs.
func bubbleAlone(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memory.New(), holders: map[string][]string{}, grants: map[string]int{}}
		defer func() { // also after Fatal, because no goroutine may be left in the bubble
			for _, m := range w.members {
				m.crash()
			}
			for _, err := range w.errs {
				w.Error(err)
			}
		}()
		f(w)
	})
}

// member is one process: an elector and a manager.
type member struct {
	*Manager
	w       *world
	node    string
	e       *core.Elector
	b       core.Backend
	link    *kvfault.Link
	stop    context.CancelFunc // of the manager
	end     context.CancelFunc // of the elector
	ran     chan error         // by the manager
	ended   chan error         // by the elector
	handler core.Handler
	gone    bool
	healthy func(context.Context) error // core.Options.Eligible
	version string                      // in its metadata
	newer   bool                        // it has a newer version of Tenure, with the next form of plans
}

func (w *world) member(node string, change ...func(*member, *Options)) *member {
	w.Helper()
	m := w.build(node, change...)
	var manage context.Context
	manage, m.stop = context.WithCancel(context.Background())
	go func() { m.ran <- m.Run(manage) }()
	return m
}

// build returns a member whose manager does not run.
func (w *world) build(node string, change ...func(*member, *Options)) *member {
	w.Helper()
	m := &member{w: w, node: node, link: &kvfault.Link{}, ran: make(chan error, 1), ended: make(chan error, 1)}
	m.handler = m.hold
	o := &Options{Shards: []string{"orders-00..29"}, Interval: interval, Logger: loglines.Failures("tenure: sharding: trying", w.fail)}
	for _, f := range change {
		f(m, o)
	}
	var err error
	if m.b, err = memory.Open(context.Background(), w.store, "test", &memory.Options{Wrap: m.link.Wrap}); err != nil {
		w.Fatal(err)
	}
	if w.wrap != nil {
		m.b = w.wrap(m.b)
	}
	meta := map[string]string{}
	if m.version != "" {
		meta["version"] = m.version
	}
	if m.e, err = core.NewElector(m.b, &core.Options{Node: node, Meta: meta, TTL: ttl, DrainBudget: 2 * time.Second, CallTimeout: ttl, Seed: 7, Watchdog: w.watchdog, Eligible: m.healthy,
		LameDuck: w.lameDuck, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		w.Fatal(err)
	}
	if m.Manager, err = NewManager(m.b, m.e, func(ctx context.Context, l *core.Lease) error { return m.handler(ctx, l) }, o); err != nil {
		w.Fatal(err)
	}
	if m.newer {
		m.Manager.form = formVersion + 1
	}
	var elect context.Context
	elect, m.end = context.WithCancel(context.Background())
	m.stop = func() {}
	go func() { m.ended <- m.e.Run(elect) }()
	w.members = append(w.members, m)
	return m
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, err)
}

func (m *member) hold(ctx context.Context, l *core.Lease) error {
	m.w.enter(m.node, l)
	defer m.w.leave(m.node, l)
	<-ctx.Done()
	return nil
}

func (w *world) enter(node string, l *core.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants[l.Shard()]++
	w.holders[l.Shard()] = append(w.holders[l.Shard()], node)
	if n := len(w.holders[l.Shard()]); n > 1 {
		w.errs = append(w.errs, fmt.Errorf("%s runs on %v", l.Shard(), w.holders[l.Shard()]))
	}
}

func (w *world) leave(node string, l *core.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.holders[l.Shard()]
	if i := slices.Index(list, node); i >= 0 {
		w.holders[l.Shard()] = slices.Delete(list, i, i+1)
	}
}

// spread returns the number of shards that each node runs. The key "" counts shards that no node
// runs.
func (w *world) spread() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]int{}
	for i := range 30 {
		name := fmt.Sprintf("orders-%02d", i)
		if h := w.holders[name]; len(h) == 0 {
			out[""]++
		} else {
			out[h[0]]++
		}
	}
	return out
}

func (w *world) owners() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]string{}
	for s, h := range w.holders {
		if len(h) > 0 {
			out[s] = h[0]
		}
	}
	return out
}

func moved(a, b map[string]string) (n int) {
	for s, o := range b {
		if a[s] != o {
			n++
		}
	}
	return n
}

// shares waits until each node has the given number of shards.
func (w *world) shares(within time.Duration, want map[string]int) {
	w.Helper()
	from := time.Now()
	for {
		synctest.Wait()
		got := w.spread()
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Since(from) > within {
			w.Fatalf("after %v the shards are shared %v, want %v", within, got, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// leaveNow stops the member as a program does: first the manager, then the elector.
func (m *member) leaveNow() error {
	m.stop()
	err := <-m.ran
	m.end()
	<-m.ended
	m.gone = true
	m.b.Close()
	return err
}

func (m *member) crash() {
	if m.gone {
		return
	}
	m.gone = true
	m.link.Cut()
	m.end()
	m.stop()
	<-m.ended
	<-m.ran
	m.b.Close()
}

func (m *member) openSlices() (out []*Slice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.slices {
		out = append(out, s)
	}
	return out
}

func (w *world) state() {
	for _, m := range w.members {
		v, t := m.e.View(), m.assigned()
		to := map[string]int{}
		for i := range len(t.names) {
			to[t.at(i).Owner.Node]++
		}
		states := map[core.LeaseState]int{}
		for _, l := range v.Leases {
			states[l.State]++
		}
		o, _ := v.Owner(assigner)
		w.Logf("%s is %.4s, trusted %v, sees %d members, contends for %d, leases %v, plan %d for %v; the assigner is %s", m.node, v.Session, v.Trusted,
			len(v.Members), v.Contended, states, t.number, to, o.Node)
	}
}
