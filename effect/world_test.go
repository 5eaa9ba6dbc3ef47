package effect

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/internal/proof/loglines"
)

const ttl = time.Second

// world is a store and the leaders of one shard, in a bubble of fake time. If a goroutine is left
// at the end, the test fails.
type world struct {
	*testing.T
	store *memory.Store
	shard string        // of the leaders; empty means "pay"
	link  *kvfault.Link // of the newest leader

	mu      sync.Mutex
	commits int // calls from all leaders
	ops     int

	takes     atomic.Int64                  // if not 0, a write with a larger value is refused
	torn      atomic.Bool                   // a write deleted only one of a record and its entry in the index of ends
	writeOps  int                           // if not 0, the limit of operations in one commit
	takesOps  atomic.Int64                  // if not 0, a write with more operations is refused
	slowRules atomic.Int64                  // how long a read of the operators' rules takes
	noRules   atomic.Bool                   // a read of the operators' rules fails
	late      atomic.Pointer[chan struct{}] // if not nil, replies to reads wait until it is closed
}

// small is a store that refuses values above world.takes, and checks deletions.
type small struct {
	kv.Store
	w *world
}

func (s small) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	for i := range b.Txns {
		if most := s.w.takesOps.Load(); most > 0 && len(b.Txns[i].Ops) > int(most) {
			return nil, core.ErrTooLarge
		}
		records, ends := 0, 0
		for _, op := range b.Txns[i].Ops {
			if most := s.w.takes.Load(); most > 0 && len(op.Value) > int(most) {
				return nil, core.ErrTooLarge
			}
			if op.Delete && strings.Contains(op.Key, recordPrefix) {
				records++
			}
			if op.Delete && strings.Contains(op.Key, endPrefix) {
				ends++
			}
		}
		if records != ends {
			s.w.torn.Store(true)
		}
	}
	return s.Store.Apply(ctx, b)
}

func (s small) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	defer s.w.wait()
	return s.Store.Get(ctx, keys...)
}

func (s small) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	defer s.w.wait()
	if strings.Contains(q.Prefix, control.Shard) {
		time.Sleep(time.Duration(s.w.slowRules.Load()))
		if s.w.noRules.Load() {
			return nil, errLost
		}
	}
	return s.Store.Range(ctx, q)
}

func (w *world) wait() {
	if late := w.late.Load(); late != nil {
		<-*late
	}
}

type narrow struct {
	core.Backend
	most int
}

func (n narrow) Info() driver.Info {
	i := n.Backend.Info()
	i.Limits.WriteOps = n.most
	return i
}

func bubble(t *testing.T, f func(w *world)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(&world{T: t, store: memory.New()}) })
}

type leader struct {
	w     *world
	b     core.Backend
	link  *kvfault.Link
	lease *core.Lease
	stop  context.CancelFunc
	leave chan struct{} // closed for the handler to return
	ended chan error
}

// lead starts a process, and waits until the process leads.
func (w *world) lead(node string) *leader {
	w.Helper()
	p := &leader{w: w, link: &kvfault.Link{}, leave: make(chan struct{}), ended: make(chan error, 1)}
	wrap := func(s kv.Store) kv.Store { return p.link.Wrap(small{s, w}) }
	var err error
	if p.b, err = memory.Open(context.Background(), w.store, "test", &memory.Options{Wrap: wrap}); err != nil {
		w.Fatal(err)
	}
	if w.writeOps > 0 {
		p.b = narrow{p.b, w.writeOps}
	}
	o := &core.Options{Node: node, TTL: ttl, LockDir: "none", Seed: 7, DrainBudget: time.Hour, CallTimeout: ttl,
		Logger: slog.New(slog.DiscardHandler)}
	o.Hooks.OnCall = func(c core.Call) {
		if c.Kind == "commit" {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.commits++
			w.ops += c.Items
		}
	}
	e, err := core.NewElector(p.b, o)
	if err != nil {
		w.Fatal(err)
	}
	led := make(chan *core.Lease, 1)
	err = e.Contend(func(_ context.Context, l *core.Lease) error {
		led <- l
		<-p.leave
		return nil
	}, cmp.Or(w.shard, "pay"))
	if err != nil {
		w.Fatal(err)
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	go func() { p.ended <- e.Run(ctx) }()
	select {
	case p.lease = <-led:
	case <-time.After(time.Minute):
		w.Fatal("no lease within a minute")
	}
	w.link = p.link
	return p
}

// open opens a ledger that logs nothing by default.
func (p *leader) open(o Options) *Ledger {
	p.w.Helper()
	if o.Logger == nil {
		o.Logger = loglines.Failures("tenure: effect", func(error) {})
	}
	l, err := Open(context.Background(), p.lease, &o)
	if err != nil {
		p.w.Fatal(err)
	}
	return l
}

// resign stops the leader as planned, after its ledger was closed.
func (p *leader) resign() {
	p.w.Helper()
	close(p.leave)
	p.stop()
	if err := <-p.ended; err != nil {
		p.w.Error(err)
	}
	p.b.Close()
}

// die cuts the leader off from its store, waits until the leader's lease is over, and then closes
// the leader's ledgers.
func (p *leader) die() {
	p.link.Cut()
	<-p.lease.Context().Done()
}

func (p *leader) bury() {
	close(p.leave)
	p.stop()
	<-p.ended
	p.b.Close()
}

// provider is the receiver of effects. It counts what happened, by idempotency key.
type provider struct {
	mu      sync.Mutex
	honours bool // it honors idempotency keys
	charges map[string]int
	calls   int
}

func newProvider(honours bool) *provider {
	return &provider{honours: honours, charges: map[string]int{}}
}

// charge counts a charge. If keys are honored, charge counts each key once.
func (p *provider) charge(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if !p.honours || p.charges[id] == 0 {
		p.charges[id]++
	}
}

func (p *provider) count(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.charges[id]
}

func (p *provider) pay(text string) Func {
	return func(_ context.Context, id string) ([]byte, error) {
		p.charge(id)
		return []byte(text), nil
	}
}

var errLost = errors.New("the reply was lost")

// lose returns a function that charges, and loses the replies to the first n calls.
func (p *provider) lose(n int) Func {
	return func(_ context.Context, id string) ([]byte, error) {
		p.charge(id)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.calls <= n {
			return nil, errLost
		}
		return []byte("paid"), nil
	}
}

// do calls Do, and fails the test if it does not return within an hour.
func (w *world) do(l *Ledger, key string, fn Func) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	out, err := l.Do(ctx, key, fn)
	return string(out), err
}
