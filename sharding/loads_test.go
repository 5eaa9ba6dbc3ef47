package sharding

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/sharding/assign"
)

// loaded is a namespace in which slices get load according to a distribution of keys.
type loaded struct {
	*world
	rate func(key int) float64 // cost per second
	keys int
	stop chan struct{}
	done chan struct{}
}

const loadTick = interval / 4

func newLoaded(w *world, members, shards, keys int, rate func(key int) float64) *loaded {
	l := &loaded{world: w, rate: rate, keys: keys, stop: make(chan struct{}), done: make(chan struct{})}
	for i := range members {
		w.member(fmt.Sprintf("n%d", i), func(m *member, o *Options) {
			o.Shards, o.Keyspace, o.Logger = nil, Keyspace{Name: "orders", Shards: shards}, nil
			m.handler = func(ctx context.Context, lease *core.Lease) error { return open(nil)(m, ctx, lease) }
		})
	}
	time.Sleep(3 * ttl)
	go func() {
		defer close(l.done)
		for {
			select {
			case <-l.stop:
				return
			case <-time.After(loadTick):
				for key := range keys {
					if s := l.serving(l.key(key)); s != nil {
						s.Add(l.key(key), rate(key)*loadTick.Seconds())
					}
				}
			}
		}
	}()
	return l
}

func (l *loaded) key(i int) string { return fmt.Sprintf("key-%d", i) }

func (l *loaded) serving(key string) *Slice {
	for _, m := range l.members {
		if m.gone {
			continue
		}
		if t := m.Map(); t != nil {
			if s := m.slice(t.Shard(key)); s != nil && s.Check(key) == nil {
				return s
			}
		}
	}
	return nil
}

func (l *loaded) spread() map[string]float64 {
	out := map[string]float64{}
	for key := range l.keys {
		if s := l.serving(l.key(key)); s != nil {
			for _, m := range l.members {
				if m.Manager == s.m {
					out[m.node] += l.rate(key)
				}
			}
		}
	}
	return out
}

func (l *loaded) worst() float64 {
	sum, most := 0.0, 0.0
	for _, x := range l.spread() {
		sum += x
		most = max(most, x)
	}
	return most / (sum / float64(len(l.members)))
}

func (l *loaded) end() {
	close(l.stop)
	<-l.done
}

// Members measure their load and report it. The assigner splits hot ranges, gives a hot key its own
// range, and balances the members.
func TestLoadIsFollowed(t *testing.T) {
	bubble(t, func(w *world) {
		const hot = 17
		rng := rand.New(rand.NewPCG(3, 3))
		rates := make([]float64, 300)
		for i := range rates {
			rates[i] = 0.5 + rng.Float64()
		}
		rates[hot] = 100 // a quarter of all load
		l := newLoaded(w, 4, 4, len(rates), func(key int) float64 { return rates[key] })
		defer l.end()
		before := l.worst()
		time.Sleep(15 * interval)
		h := Keyspace{}.Of(l.key(hot))
		m := w.members[0].Map()
		for shard, r := range m.All() {
			if r.Has(h) && r != (assign.Range{From: h, To: h + 1}) {
				w.Errorf("the hot key is in %s with %v", shard, r)
			}
		}
		time.Sleep(20 * interval)
		if got := l.worst(); got > 1.15 {
			w.Errorf("the most loaded member has %.2f times the mean, before %.2f: %v", got, before, l.spread())
		}
		w.Logf("the most loaded member had %.2f times the mean, and has %.2f, with %d ranges", before, l.worst(), w.members[0].Map().Len())
	})
}

// If there is no load, members neither write nor read reports. If the load is constant, they rarely
// write reports.
func TestLoadIsToldSeldom(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	bubble(t, func(w *world) {
		var on atomic.Bool
		l := newLoaded(w, 3, 6, 60, func(int) float64 {
			if on.Load() {
				return 1
			}
			return 0
		})
		defer l.end()
		calls := func(during time.Duration) (n int) {
			for _, m := range w.members {
				n -= m.link.Count(kvfault.All)
			}
			time.Sleep(during)
			for _, m := range w.members {
				n += m.link.Count(kvfault.All)
			}
			return n
		}
		idle := calls(time.Minute)
		on.Store(true)
		time.Sleep(time.Minute)
		steady := calls(time.Minute)
		on.Store(false)
		time.Sleep(3 * time.Minute) // until the rates are zero and reported as zero
		after := calls(time.Minute)
		w.Logf("3 members for a minute, at an interval of %v: %d calls without load, %d with a steady one, %d after it",
			interval, idle, steady, after)
		if steady <= idle || after > idle+idle/50 {
			w.Error("the load is not told, or goes on being told when there is none")
		}
	})
}
