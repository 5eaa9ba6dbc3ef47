package follower

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
)

type quitter struct {
	Restorer
	loads, applies, restores atomic.Int32
}

func (q *quitter) Load(ctx context.Context) (Checkpoint, error) {
	quit(&q.loads)
	return q.Restorer.Load(ctx)
}

func (q *quitter) Apply(ctx context.Context, b Batch) error {
	quit(&q.applies)
	return q.Restorer.Apply(ctx, b)
}

func (q *quitter) Restore(ctx context.Context, from Position, s *Snapshot) error {
	quit(&q.restores)
	return q.Restorer.Restore(ctx, from, s)
}

func quit(n *atomic.Int32) {
	if n.Add(1) <= 2 {
		runtime.Goexit()
	}
}

// An Applier that ends its goroutine counts as failed and is called again. An OnEvent or logger
// that always ends its goroutine delays nothing, and Run ends.
func TestGoexit(t *testing.T) {
	bubble(t, func(w *world) {
		b := w.open()
		own := newOwner(w, b, "owner")
		own.append("s", 5)
		l := newApplication(w)
		q := &quitter{Restorer: Memory(l.apply, l.restore)}
		var told atomic.Int32
		o := &Options{Logger: slog.New(slog.NewTextHandler(quits(func() { told.Add(1); runtime.Goexit() }), nil))}
		o.OnEvent = func(Event) { told.Add(1); runtime.Goexit() }
		r := run(w, b, o, q)
		r.until("s", 5)
		own.append("t", 3)
		r.until("t", 3)
		if q.loads.Load() < 3 || q.applies.Load() < 3 || told.Load() < 8 {
			w.Errorf("Load was called %d times, Apply %d, OnEvent and logger %d", q.loads.Load(), q.applies.Load(), told.Load())
		}
		began := time.Now()
		r.end()
		if took := time.Since(began); took > time.Second {
			w.Errorf("Run took %v to end", took)
		}
	})
}

// TestRestoreGoexit is the same test for Restore, with a trimmed log.
func TestRestoreGoexit(t *testing.T) {
	snapshots, err := NewSnapshotter(&SnapshotOptions{Keep: -1})
	if err != nil {
		t.Fatal(err)
	}
	bubble(t, func(w *world) {
		if err := lead(w, w.open(), func(lease *core.Lease) error {
			return errors.Join(appendTo(lease, 20), snapshots.Write(lease.Context(), lease, 20, stateAfter(20)))
		}); err != nil {
			w.Fatal(err)
		}
		l := newApplication(w)
		q := &quitter{Restorer: Memory(l.apply, l.restore)}
		r := run(w, w.open(), &Options{Snapshots: snapshots}, q)
		r.until("s", 20)
		r.end()
		if q.restores.Load() != 3 || l.from["s"] != 20 {
			w.Errorf("restored %d times, up to %d", q.restores.Load(), l.from["s"])
		}
	})
}

type quits func()

func (q quits) Write(b []byte) (int, error) { q(); return len(b), nil }
