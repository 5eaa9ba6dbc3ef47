package follower

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// TestStoreWentBack: T8, while following and over a restart, with the head behind
// the position, and with a head that has caught up by other entries.
func TestStoreWentBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		while  bool // the follower runs
		anew   int  // entries appended after the restore
		raised bool // by a new owner, as after an operator raised the floor
	}{
		{"running", true, 0, false},
		{"restarted", false, 0, false},
		{"restarted, some entries later", false, 3, true},
		{"restarted, as many entries later", false, 10, true},
		{"restarted, more entries later", false, 30, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "positions")
			bubble(t, func(w *world) {
				first := newOwner(w, w.open(), "first")
				first.append("other", 5)
				first.append("s", 10)
				backup := w.store.Snapshot()
				first.append("s", 10)

				l := newLedger(w)
				o := &Options{Resync: time.Second}
				r := run(w, w.open(), o, Stored(NewFile(path), l.apply, nil))
				r.until("s", 20)
				if !c.while {
					r.end()
				}
				w.store.Restore(backup)
				if c.anew > 0 {
					b := w.open()
					second := newOwner(w, b, "second")
					for range 30 { // as raising the floor does: tokens above all before
						second.take("other")
					}
					second.append("s", c.anew)
				}
				if !c.while {
					r = run(w, w.open(), o, Stored(NewFile(path), l.apply, nil))
				}
				if c.anew == 10 { // the same head as before: the next entry tells
					third := newOwner(w, w.open(), "third")
					third.append("s", 1)
				}
				err := r.wait()
				if !errors.Is(err, core.ErrStoreChanged) {
					w.Errorf("Run returned %v, want ErrStoreChanged", err)
				}
				if changed, ok := errors.AsType[*StoreChangedError](err); ok && changed.Position.Seq != 20 {
					w.Errorf("the error is of entry %d, want 20", changed.Position.Seq)
				} else if !ok && !c.while {
					w.Errorf("Run returned %v, want a *StoreChangedError", err)
				}
				if got := l.at("s"); got != 20 {
					w.Errorf("applied up to %d", got)
				}
			})
		})
	}
}

// TestStoreLostShard: a shard with a position that the store does not list at all.
func TestStoreLostShard(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		o.append("s", 3)
		b := &tap{Backend: w.open()}
		r := run(w, b, &Options{Resync: time.Second}, Memory(newLedger(w).apply, nil))
		r.until("s", 3)
		b.mu.Lock()
		b.tail = func(_ context.Context, _ driver.Cursor, page *driver.TailPage, err error) (*driver.TailPage, error) {
			if err == nil {
				page.Heads = nil
			}
			return page, err
		}
		b.mu.Unlock()
		time.Sleep(10 * time.Second)
		if lag := r.Lag(); !lag.Known { // the log itself is there: nothing to complain about
			w.Errorf("a page that lists nothing stopped it: %+v", lag)
		}
		b.mu.Lock()
		b.read = func(driver.ShardID, driver.Seq, *driver.LogPage, error) (*driver.LogPage, error) {
			return &driver.LogPage{}, nil
		}
		b.mu.Unlock()
		if err := r.wait(); !errors.Is(err, core.ErrStoreChanged) {
			w.Errorf("Run returned %v", err)
		}
	})
}

// TestAnotherStore: positions of another store are refused before anything is
// applied.
func TestAnotherStore(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		o.append("s", 3)
		l := newLedger(w)
		p := &inMemory{store: "another", at: map[string]Position{"s": {Shard: "s", Seq: 1, Token: o.fence["s"].Token}}}
		err := run(w, w.open(), nil, Stored(p, l.apply, nil)).wait()
		if !errors.Is(err, core.ErrStoreChanged) || l.calls > 0 {
			w.Errorf("Run returned %v after %d calls", err, l.calls)
		}
	})
}

// TestRefusedEntries: a gap and a lower token are never applied, whoever brings
// them.
func TestRefusedEntries(t *testing.T) {
	for name, damage := range map[string]func(e []driver.Entry) []driver.Entry{
		"lower token": func(e []driver.Entry) []driver.Entry {
			for i := range e {
				if e[i].Seq == 8 {
					e[i].Token = 1
				}
			}
			return e
		},
		"gap": func(e []driver.Entry) []driver.Entry {
			return slices.DeleteFunc(e, func(e driver.Entry) bool { return e.Seq == 8 })
		},
		"doubled": func(e []driver.Entry) []driver.Entry {
			for i := range e {
				if e[i].Seq == 8 {
					e[i].Seq = 7
				}
			}
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				o := newOwner(w, w.open(), "owner")
				o.append("s", 5)
				o.take("s")
				b := &tap{Backend: w.open()}
				l := newLedger(w)
				r := run(w, b, nil, Memory(l.apply, nil))
				r.until("s", 5)
				b.mu.Lock()
				b.tail = func(_ context.Context, _ driver.Cursor, page *driver.TailPage, err error) (*driver.TailPage, error) {
					if err == nil {
						page.Entries = damage(page.Entries)
					}
					return page, err
				}
				b.read = func(_ driver.ShardID, _ driver.Seq, page *driver.LogPage, err error) (*driver.LogPage, error) {
					if err == nil {
						page.Entries = damage(page.Entries)
					}
					return page, err
				}
				b.mu.Unlock()
				o.append("s", 2)
				synctest.Wait()
				o.append("s", 3)
				time.Sleep(time.Minute)
				if got := l.at("s"); got != 7 {
					w.Errorf("applied up to %d, want 7, what precedes the damage", got)
				}
				if err := r.Fresh("s", time.Hour); err != nil {
					w.Errorf("Fresh says %v", err)
				}
				if lag, err := r.ShardLag("s"); err != nil || !errors.Is(lag.Err, ErrOrder) {
					w.Errorf("the lag is %+v, %v", lag, err)
				}
				b.mu.Lock()
				b.tail, b.read = nil, nil // the answers were wrong, not the log
				b.mu.Unlock()
				r.until("s", 10)
				r.end()
			})
		})
	}
}

// TestPositionMoved: where the Applier says that it is elsewhere, the Tailer asks
// where, and goes on from there.
func TestPositionMoved(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		o.append("s", 200)
		var got []core.Seq
		p := &inMemory{at: make(map[string]Position)}
		moved := 0
		apply := func(_ context.Context, b Batch) error {
			for _, e := range b.Entries {
				if e.Seq == 101 && moved == 0 {
					moved++
					if err := p.Save(w.Context(), b.Store, Position{Shard: "s", Seq: 150, Token: e.Token}); err != nil {
						return err
					}
					return ErrMoved
				}
				got = append(got, e.Seq)
			}
			return nil
		}
		r := run(w, w.open(), &Options{Batch: 1}, Stored(p, apply, nil))
		r.until("s", 200)
		if len(got) != 150 || got[99] != 100 || got[100] != 151 {
			w.Errorf("%d entries were applied, want 1 to 100 and 151 to 200: %v", len(got), got)
		}
		r.end()
	})
}
