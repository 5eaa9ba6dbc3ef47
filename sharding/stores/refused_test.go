package stores_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/fleet"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

const (
	producers = 64
	begun     = 8 // ranges
)

// served contains this process's open slices, by shard.
type served struct{ sync.Map }

func (s *served) of(m *sharding.Map, key string) *sharding.Slice {
	if x, ok := s.Load(m.Shard(key)); ok {
		return x.(*sharding.Slice)
	}
	return nil
}

// splitter splits the range of a hash in the middle on request.
type splitter struct {
	assign.Balance
	at atomic.Uint64
}

func (d *splitter) Plan(c *assign.Cluster) *assign.Plan {
	p := d.Balance.Plan(c)
	h := d.at.Load()
	for i := range c.Shards {
		if s := &c.Shards[i]; h != 0 && !s.Busy && s.Range.Has(h) && s.Range.From != h {
			p.Splits = append(p.Splits, assign.Split{Shard: int32(i), At: []uint64{h}})
		}
	}
	return p
}

// TestRefused splits a range while 64 producers write. It measures how long keys that move to the
// new shard are refused, and how long writes to other ranges take. The figures in docs/sharding.md
// are from a quiet machine. The limits in this test apply to any machine.
func TestRefused(t *testing.T) {
	for i, p := range fleet.Places() {
		t.Run(p.Name, func(t *testing.T) {
			if testing.Short() && i > 0 {
				t.Skip("the figures of the other stores: without -short")
			}
			text := "tenure:\n  ttl: 5s\n  lock_dir: none\n  backends:\n    " + p.New(t).Part("", "test") + "\n"
			c, err := config.Load(&config.LoadOptions{Path: "refused", Data: []byte(text)})
			if err != nil {
				t.Fatal(err)
			}
			b, err := c.Open(t.Context(), fleet.Openers()...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			refused(t, b, c.Options())
		})
	}
}

// member returns a member of a keyspace, which already serves all ranges. The member ends with the
// test.
func member(
	t *testing.T, b core.Backend, o *core.Options, d assign.Assigner, take sharding.Take,
) (m *sharding.Manager, open *served) {
	open = &served{}
	o.Logger = slog.New(slog.DiscardHandler)
	e, err := core.NewElector(b, o)
	if err != nil {
		t.Fatal(err)
	}
	m, err = sharding.NewManager(b, e, func(ctx context.Context, l *core.Lease) error {
		s, err := m.OpenSlice(ctx, l, take)
		if err != nil {
			return err
		}
		defer s.Close()
		open.Store(l.Shard(), s)
		defer open.Delete(l.Shard())
		<-ctx.Done()
		return nil
	}, &sharding.Options{
		Keyspace: sharding.Keyspace{Name: "k", Shards: begun}, Assigner: d, Interval: 100 * time.Millisecond, LeaveBudget: 10 * time.Second,
		Loads: func(context.Context) (map[string]float64, error) { return nil, nil }, // plan in each interval
	})
	if err != nil {
		t.Fatal(err)
	}
	run, end := context.WithCancel(context.Background())
	manage, leave := context.WithCancel(run)
	ran, managed := make(chan error, 1), make(chan error, 1)
	go func() { ran <- e.Run(run) }()
	go func() { managed <- m.Run(manage) }()
	t.Cleanup(func() {
		leave()
		if err := errors.Join(<-managed, func() error { end(); return <-ran }()); err != nil {
			t.Error(err)
		}
	})
	ample.Wait(t, "the shards are not served", func() bool { return m.Map() != nil && length(open) == begun })
	return m, open
}

func refused(t *testing.T, b core.Backend, o *core.Options) {
	d := &splitter{}
	k := sharding.Keyspace{Name: "k", Shards: begun}
	m, open := member(t, b, o, d, nil)

	l := &load{m: m, open: open, k: k, stop: make(chan struct{})}
	for range producers {
		l.work.Go(l.produce)
	}
	defer l.work.Wait()
	defer close(l.stop)
	g := ample.Beside(t, time.Second, func() { _, _ = b.Get(t.Context(), "k-0000", "none") })
	time.Sleep(time.Second)
	without := l.measure(*window)
	var gaps []time.Duration
	l.take()
	const splits = 10
	for i := range splits {
		h := (uint64(i)*2 + 1) << 55 // within the first range, which ends at 1 << 61
		l.watch(h)
		d.at.Store(h)
		gaps = append(gaps, l.refusal(t))
	}
	during := l.take()
	slices.Sort(gaps)
	t.Logf("refused for %v at the median, %v at most, in %d splits; p99 of a write to other ranges %v, without splits %v",
		gaps[splits/2].Round(100*time.Microsecond), gaps[splits-1].Round(100*time.Microsecond), splits, p99(during), p99(without))
	g.AtMost("refusing keys", gaps[splits-1], 5*time.Second)
}

func length(s *served) (n int) {
	s.Range(func(any, any) bool { n++; return true })
	return n
}

// load consists of 64 producers, each of which writes to one key after another.
type load struct {
	m    *sharding.Manager
	open *served
	k    sharding.Keyspace
	stop chan struct{}
	work sync.WaitGroup

	mu   sync.Mutex
	took []time.Duration // of writes to ranges that are not split
	key  string          // the watched key
}

func (l *load) produce() {
	for n := rand.IntN(1 << 30); ; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		key := fmt.Sprint(n)
		from := time.Now()
		if s := l.open.of(l.m.Map(), key); s != nil {
			if _, err := s.Commit(context.Background(), key, core.Append([]byte(key))); err == nil && l.k.Of(key) >= 1<<61 {
				l.mu.Lock()
				l.took = append(l.took, time.Since(from))
				l.mu.Unlock()
			}
		}
	}
}

// take returns the durations of the writes since the last call of take.
func (l *load) take() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.took
	l.took = nil
	return out
}

func (l *load) measure(d time.Duration) []time.Duration {
	l.take()
	time.Sleep(d)
	return l.take()
}

// watch chooses a key that the split at h gives away.
func (l *load) watch(h uint64) {
	for n := 0; ; n++ {
		l.key = fmt.Sprint("w", n)
		if x := l.k.Of(l.key); x >= h && x < h+1<<54 {
			return
		}
	}
}

// refusal returns how long the key's former and new shards refuse the watched key.
func (l *load) refusal(t *testing.T) time.Duration {
	t.Helper()
	before := l.m.Map().Shard(l.key)
	var first time.Time
	for range ample.During(ample.Time, 200*time.Microsecond) {
		ok := false
		shard := ""
		l.open.Range(func(name, s any) bool {
			if s.(*sharding.Slice).Check(l.key) == nil {
				ok, shard = true, name.(string)
			}
			return !ok
		})
		switch {
		case !ok && first.IsZero():
			first = time.Now()
		case ok && !first.IsZero():
			return time.Since(first)
		case ok && shard != before: // the change was faster than the polling
			return 0
		}
	}
	t.Fatal("the split is not over")
	return 0
}

func p99(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)*99/100].Round(10 * time.Microsecond)
}
