package follower

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// TestStoreWentBack checks T8 while the follower runs and across a restart. Either the head is
// behind the position, or new entries have raised the head to the position again.
func TestStoreWentBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		while  bool // the follower runs during the restore
		anew   int  // entries appended after the restore
		raised bool // by a new owner, as after an operator raised the floor
	}{
		{"running", true, 0, false},
		{"running, more entries later", true, 30, true},
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

				l := newApplication(w)
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
					for range 30 { // as raising the floor does: tokens above all earlier ones
						second.take("other")
					}
					second.append("s", c.anew)
				}
				if !c.while {
					r = run(w, w.open(), o, Stored(NewFile(path), l.apply, nil))
				}
				if c.anew == 10 { // the head is as before; only the next entry differs
					third := newOwner(w, w.open(), "third")
					third.append("s", 1)
				}
				r.within(time.Hour)
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

// TestStoreWentBackUnheard checks T8 if the stream hangs while new entries are appended.
func TestStoreWentBackUnheard(t *testing.T) {
	for name, c := range map[string]struct {
		o     Options
		fault func(w *world, r *follow, b *faultyBackend, o *owner, back func())
	}{
		"the stream fails": {Options{Resync: time.Hour},
			func(_ *world, _ *follow, b *faultyBackend, _ *owner, back func()) {
				back()
				b.setDown(errors.New("connection reset"))
				time.Sleep(5 * time.Second)
				b.setDown(nil)
			}},
		"the heads are news": {Options{Resync: time.Minute}, func(_ *world, _ *follow, _ *faultyBackend, _ *owner, back func()) { back() }},
		"Sync": {Options{Resync: time.Hour}, func(_ *world, r *follow, _ *faultyBackend, _ *owner, back func()) {
			back()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			// The Tailer ends with ErrStoreChanged, which the test checks below.
			if err := r.Sync(ctx, "s"); !errors.Is(err, core.ErrStopped) {
				r.t.Errorf("Sync in a store that went back: %v, want ErrStopped", err)
			}
		}},
		"a read fails": {Options{Resync: time.Hour, Batch: 5},
			func(w *world, r *follow, b *faultyBackend, o *owner, back func()) {
				o.append("s", 10)
				b.mu.Lock()
				b.read = func(
					_ driver.ShardID, after driver.Seq, page *driver.LogPage, err error,
				) (*driver.LogPage, error) {
					if after == 25 {
						return nil, errors.New("connection reset")
					}
					return page, err
				}
				b.mu.Unlock()
				go func() { _ = r.Sync(w.Context(), "s") }()
				time.Sleep(20 * time.Millisecond)
				back()
				b.mu.Lock()
				b.read = nil
				b.mu.Unlock()
			}},
		"a read is answered late": {Options{Resync: time.Minute, Batch: 5, CallTimeout: time.Hour},
			func(w *world, r *follow, b *faultyBackend, o *owner, back func()) {
				o.append("s", 10)
				answer := make(chan struct{})
				b.mu.Lock()
				b.read = func(
					shard driver.ShardID, after driver.Seq, page *driver.LogPage, err error,
				) (*driver.LogPage, error) {
					if after == 25 {
						<-answer
						return b.Backend.ReadLog(w.Context(), shard, after, 5)
					}
					return page, err
				}
				b.mu.Unlock()
				go func() { _ = r.Sync(w.Context(), "s") }()
				time.Sleep(20 * time.Millisecond)
				back()
				time.Sleep(2 * time.Minute)
				close(answer)
			}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			bubble(t, func(w *world) {
				first := newOwner(w, w.open(), "first")
				first.append("other", 5)
				first.append("s", 10)
				backup := w.store.Snapshot()
				first.append("s", 10)
				b := &faultyBackend{Backend: w.open()}
				b.tail = func(
					ctx context.Context, since driver.Cursor, page *driver.TailPage, err error,
				) (*driver.TailPage, error) {
					for since != "" { // the stream hangs
						select {
						case <-ctx.Done():
							return nil, ctx.Err()
						case <-time.After(time.Second):
						}
						if err := b.isDown(); err != nil {
							return nil, err
						}
					}
					return page, err
				}
				l := newApplication(w)
				r := run(w, b, &c.o, Memory(l.apply, nil))
				r.until("s", 20)
				synctest.Wait()
				c.fault(w, r, b, first, func() {
					w.store.Restore(backup)
					second := newOwner(w, w.open(), "second")
					for range 50 { // as raising the floor does: tokens above all earlier ones
						second.take("other")
					}
					second.append("s", 40)
				})
				r.within(time.Hour)
				if _, ok := errors.AsType[*StoreChangedError](r.wait()); !ok {
					w.Errorf("Run returned %v, want a *StoreChangedError", r.err)
				}
				for _, e := range l.applied["s"] {
					if e.Token != l.applied["s"][0].Token {
						w.Errorf("entry %d of another history was applied", e.Seq)
						break
					}
				}
			})
		})
	}
}

// TestStreamOfBefore: the stream delivers entries that the store then loses. These entries are not
// applied after the entries that replaced them.
func TestStreamOfBefore(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		l := newApplication(w)
		step := make(chan struct{})
		l.fail = func(b Batch) error {
			if b.From.Seq == 8 {
				<-step
			}
			return nil
		}
		b := &faultyBackend{Backend: w.open()}
		b.tail = func(_ context.Context, _ driver.Cursor, page *driver.TailPage, err error) (*driver.TailPage, error) {
			if err == nil && len(page.Entries) > 0 && page.Entries[0].Seq == 9 {
				for seq := 10; seq <= 20; seq++ {
					page.Entries = append(page.Entries, driver.Entry{Shard: "s", Seq: driver.Seq(seq), Token: 99,
						Payload: []byte(strconv.Itoa(seq))})
				}
			}
			return page, err
		}
		r := run(w, b, &Options{Batch: 1}, Memory(l.apply, nil))
		r.until("s", o.append("s", 8))
		synctest.Wait()
		o.append("s", 1)
		synctest.Wait() // this entry is being applied, and the other entries wait
		w.store.BreakWatches()
		o.append("s", 3)
		time.Sleep(time.Minute)
		close(step)
		r.until("s", 12)
		time.Sleep(time.Minute)
		r.end()
		if got := l.at("s"); got != 12 {
			w.Errorf("applied up to %d, want 12", got)
		}
		for _, e := range l.applied["s"] {
			if e.Token == 99 {
				w.Errorf("entry %d was applied, which is lost", e.Seq)
			}
		}
	})
}

// TestStoreLostShard: the store does not list a shard that has a position.
func TestStoreLostShard(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		o.append("s", 3)
		b := &faultyBackend{Backend: w.open()}
		r := run(w, b, &Options{Resync: time.Second}, Memory(newApplication(w).apply, nil))
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
		if lag := r.Lag(); !lag.Known { // the log itself exists, so there is nothing to report
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

// TestAnotherStore: positions from a different store are refused before anything is applied.
func TestAnotherStore(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		o.append("s", 3)
		l := newApplication(w)
		p := &inMemory{store: "another", at: map[string]Position{"s": {Shard: "s", Seq: 1, Token: o.fence["s"].Token}}}
		err := run(w, w.open(), nil, Stored(p, l.apply, nil)).wait()
		if !errors.Is(err, core.ErrStoreChanged) || l.calls > 0 {
			w.Errorf("Run returned %v after %d calls", err, l.calls)
		}
	})
}

// TestRefusedEntries: a gap and a lower token are never applied, from the stream or
// from a read (T1, T2).
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
				b := &faultyBackend{Backend: w.open()}
				l := newApplication(w)
				r := run(w, b, nil, Memory(l.apply, nil))
				r.until("s", 5)
				b.mu.Lock()
				b.tail = func(
					_ context.Context, _ driver.Cursor, page *driver.TailPage, err error,
				) (*driver.TailPage, error) {
					if err == nil {
						page.Entries = damage(page.Entries)
					}
					return page, err
				}
				b.read = func(
					_ driver.ShardID, _ driver.Seq, page *driver.LogPage, err error,
				) (*driver.LogPage, error) {
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
					w.Errorf("applied up to %d, want 7, the entry before the damage", got)
				}
				if err := r.Fresh("s", time.Hour); err != nil {
					w.Errorf("Fresh says %v", err)
				}
				if lag, err := r.shardLag("s"); err != nil || !errors.Is(lag.Err, ErrOrder) {
					w.Errorf("the lag is %+v, %v", lag, err)
				}
				b.mu.Lock()
				b.tail, b.read = nil, nil // only the answers were wrong; the log was not
				b.mu.Unlock()
				r.until("s", 10)
				r.end()
			})
		})
	}
}

// TestPositionMoved: if the Applier reports that its position has moved, the Tailer loads the
// position, and continues from there.
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
