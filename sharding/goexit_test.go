package sharding

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/loglines"
	"github.com/tenure-go/tenure/sharding/assign"
)

// Every function in Options ends its goroutine in the first calls or, if the function only reports,
// in every call. Each shard and each range still gets an owner, and Run ends.
func TestGoexit(t *testing.T) {
	bubble(t, func(w *world) {
		var prepared, took, loaded, told, taken atomic.Int32
		first := func(n *atomic.Int32, times int32) {
			if n.Add(1) <= times {
				runtime.Goexit()
			}
		}
		d := &divider{}
		start := func(node string) *member {
			return w.member(node, func(m *member, o *Options) {
				o.Keyspace, o.Assigner = Keyspace{Name: "keys", Shards: 1}, d
				o.Prepare = func(context.Context, string) error { first(&prepared, 5); return nil }
				o.Takes = func(core.Member) bool { first(&took, 5); return true }
				o.Loads = func(context.Context) (map[string]float64, error) { first(&loaded, 5); return nil, nil }
				o.OnPlan = func(*Outcome) { first(&told, 1000) }
				o.OnRange = func([]RangeEvent) { first(&told, 1000) }
				o.Logger = loglines.Failures("tenure: sharding: trying", func(error) { first(&told, 1000) })
				options := reflect.ValueOf(o).Elem()
				for i := range options.NumField() {
					if f := options.Field(i); f.Kind() == reflect.Func && f.IsNil() {
						w.Errorf("Options.%s is not tried here", options.Type().Field(i).Name)
					}
				}
				m.handler = func(ctx context.Context, l *core.Lease) error {
					if _, err := m.o.Keyspace.index(l.Shard()); err != nil {
						return m.hold(ctx, l)
					}
					s, err := m.OpenSlice(ctx, l, func(context.Context, string, assign.Range) ([]core.Op, error) { first(&taken, 2); return nil, nil })
					if err != nil {
						return err
					}
					defer s.Close()
					<-ctx.Done()
					return nil
				}
			})
		}
		a := start("a")
		w.shares(10*ttl, map[string]int{"a": 30})
		b := start("b")
		w.await("both have shards", 30*ttl, func() bool { n := w.spread(); return n["a"] >= 14 && n["b"] >= 14 })
		whole := a.Map()
		if whole == nil {
			w.Fatal("no map of ranges")
		}
		d.ask(map[string][]uint64{"keys-0000": {1 << 63}}, nil)
		w.await("the range is split", 20*ttl, func() bool {
			done := 0
			for _, m := range w.members {
				for _, s := range m.openSlices() {
					if r, complete := s.Range(); complete && !r.Empty() {
						done++
					}
				}
			}
			return done == 2
		})
		w.Logf("called: Prepare %d, Takes %d, Loads %d, Take %d, told %d", prepared.Load(), took.Load(), loaded.Load(), taken.Load(), told.Load())
		if prepared.Load() < 15 || taken.Load() < 3 || loaded.Load() < 6 || told.Load() == 0 {
			w.Error("not all were called")
		}
		for _, m := range []*member{b, a} {
			if err := m.leaveNow(); err != nil && !errors.Is(err, context.Canceled) {
				w.Error(err)
			}
		}
	})
}
