package effect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Take transfers the whole range and its index, regardless of the keys.
func TestTakeWhole(t *testing.T) {
	bubble(t, func(w *world) {
		write := func(p *leader, of string) (keys []string) {
			var ops []core.Op
			for i := range 900 {
				// Some keys are prefixes of others, and some contain the first and the last
				// characters in sort order.
				key := []string{"go/%d", "go/_-%d", "go/z/%03d.x", "go-%d", "g/%d", "stay/%d", "go/order_%04d", "z%d", "go/%[1]d/%[1]d"}[i%9]
				e := Effect{Key: fmt.Sprintf(key, i/9), State: Done, Reason: of, Began: now(), Ended: now()}
				if i%2 == 0 {
					e.State, e.Ended = InDoubt, time.Time{}
				}
				keys = append(keys, e.Key)
				if ops = append(ops, record(e)...); i%90 == 89 {
					if _, err := p.lease.Commit(context.Background(), ops...); err != nil {
						w.Fatal(err)
					}
					ops = nil
				}
			}
			return keys
		}
		has := func(key string) bool { return strings.HasPrefix(key, "go") }
		w.shard = "one"
		p := w.lead("a")
		keys := write(p, "giver")
		w.shard = "two"
		q := w.lead("b")
		write(q, "before")
		late := Effect{Key: "go/mine", State: Done, Ended: now()}
		if _, err := q.lease.Commit(context.Background(), record(late)...); err != nil {
			w.Fatal(err)
		}
		ops, err := Take(context.Background(), p.b, q.lease, "one", has)
		if err != nil {
			w.Fatal(err)
		}
		for ; len(ops) > 0; ops = ops[min(100, len(ops)):] {
			if _, err := q.lease.Commit(context.Background(), ops[:min(100, len(ops))]...); err != nil {
				w.Fatal(err)
			}
		}
		for _, shard := range []core.ShardID{"one", "two"} {
			all, err := p.b.List(context.Background(), shard, Prefix, 0, 0)
			if err != nil || len(all) != 2*len(keys) {
				w.Errorf("shard %s: %d items, want %d: %v", shard, len(all), 2*len(keys), err)
			}
		}
		for _, key := range keys {
			e, err := Read(context.Background(), q.b, "two", key)
			if want := map[bool]string{true: "giver", false: "before"}[has(key)]; err != nil || e == nil || e.Reason != want {
				w.Errorf("%s: %+v, %v, want the %s's", key, e, err, want)
			}
		}
		p.resign()
		q.resign()
	})
}

// endless is a shard with an endless list of effects.
type endless struct{ core.Backend }

func (endless) List(_ context.Context, _ core.ShardID, prefix string, _, _ int) ([]core.Item, error) {
	value := make([]byte, maxRecord)
	items := []core.Item{}
	for i := range 1000 {
		items = append(items, core.Item{Key: fmt.Sprintf("%s%04d", prefix, i), Value: value})
	}
	return items, nil
}

// The size of the operations that Take returns is limited.
func TestTakeIsBounded(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.lead("a")
		ops, err := Take(context.Background(), endless{p.b}, p.lease, "one", func(string) bool { return true })
		if !errors.Is(err, core.ErrTooLarge) || ops != nil || !strings.Contains(err.Error(), "Keep") {
			w.Errorf("%d operations, %v", len(ops), err)
		}
		p.resign()
	})
}
