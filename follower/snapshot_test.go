package follower

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// doomed ends a process after a number of commits. Either the next commit does not reach the store,
// or its reply is lost.
type doomed struct {
	mu      sync.Mutex
	left    int
	replies bool // the last commit is applied, but its reply is lost
}

func (d *doomed) around(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
	if c.Op != intercept.Commit && c.Op != intercept.Beat {
		return proceed(ctx)
	}
	d.mu.Lock()
	if c.Op == intercept.Commit {
		d.left--
	}
	left := d.left
	d.mu.Unlock()
	if left >= 0 {
		return proceed(ctx)
	}
	if c.Op == intercept.Commit && left == -1 && d.replies {
		_ = proceed(ctx) // its reply is lost
	}
	return errors.New("gone")
}

// lead runs f as the owner of shard s, and returns f's error once the shard is released or lost.
func lead(w *world, b driver.Backend, f func(lease *core.Lease) error) error {
	e, err := core.NewElector(b, &core.Options{Node: "n", TTL: time.Second})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	err = e.Contend(func(_ context.Context, lease *core.Lease) error {
		done <- f(lease)
		cancel()
		return nil
	}, "s")
	if err != nil {
		w.Fatal(err)
	}
	_ = e.Run(ctx) // the backend may already be closed
	return <-done
}

func appendTo(lease *core.Lease, n int) error {
	for range n {
		if _, err := lease.Append(lease.Context(), []byte(strconv.Itoa(int(lease.Head().Seq)+1))); err != nil {
			return err
		}
	}
	return nil
}

// TestSnapshotCrash: an owner dies after one of a Write's commits. New and lagging followers get
// the whole state, and the next owner's snapshot removes all former snapshots (T7).
func TestSnapshotCrash(t *testing.T) {
	snapshots, err := NewSnapshotter(&SnapshotOptions{Keep: -1, chunkBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	o := &Options{Snapshots: snapshots}
	const commits = 8 // the commits of the second Write, and one more
	for _, replies := range []bool{false, true} {
		for crash := range commits {
			t.Run(fmt.Sprintf("after %d commits, replies lost %v", crash, replies), func(t *testing.T) {
				bubble(t, func(w *world) {
					lagging := newApplication(w)
					r := run(w, w.open(), o, Memory(lagging.apply, lagging.restore))
					if err := lead(w, w.open(), func(lease *core.Lease) error {
						if err := appendTo(lease, 20); err != nil {
							return err
						}
						r.until("s", 20)
						lagging.onApply(func(Batch) error { return errors.New("stays at entry 20") })
						if err := appendTo(lease, 10); err != nil {
							return err
						}
						return snapshots.Write(lease.Context(), lease, 30, stateAfter(30))
					}); err != nil {
						w.Fatal(err)
					}
					d := &doomed{left: 1 << 20, replies: replies}
					died := lead(w, intercept.Wrap(w.open(), d.around), func(lease *core.Lease) error {
						if err := appendTo(lease, 10); err != nil {
							return err
						}
						d.mu.Lock()
						d.left = crash
						d.mu.Unlock()
						return snapshots.Write(lease.Context(), lease, 38, stateAfter(38))
					})
					if (died == nil) != (crash == commits-1) && !(replies && crash == commits-2) {
						w.Errorf("Write returned %v", died)
					}
					check := func(last core.Seq) {
						w.Helper()
						l := newApplication(w)
						f := run(w, w.open(), o, Memory(l.apply, l.restore))
						f.until("s", last)
						f.end()
						if l.at("s") != last || l.from["s"] < 30 {
							w.Errorf("a new follower restored entry %d and applied up to %d, want %d", l.from["s"],
								l.at("s"), last)
						}
					}
					check(40)
					if err := lead(w, w.open(), func(lease *core.Lease) error {
						if err := appendTo(lease, 10); err != nil {
							return err
						}
						return snapshots.Write(lease.Context(), lease, 45, stateAfter(45))
					}); err != nil {
						w.Fatal(err)
					}
					check(50)
					items, err := w.open().List(w.Context(), "s", "_snapshot/", 0, 0)
					if err != nil || len(items) != 4 {
						w.Errorf("%d items are left, %v, want the manifest and three chunks", len(items), err)
					}
					lagging.onApply(nil)
					r.until("s", 50)
					if lagging.from["s"] < 38 || lagging.at("s") != 50 {
						w.Errorf("the lagging follower restored entry %d and applied up to %d", lagging.from["s"],
							lagging.at("s"))
					}
					r.end()
				})
			})
		}
	}
}

// TestSnapshotKeeps checks that a snapshot keeps the stated number of entries, refuses an entry out
// of order, and can be repeated.
func TestSnapshotKeeps(t *testing.T) {
	bubble(t, func(w *world) {
		s, err := NewSnapshotter(&SnapshotOptions{Keep: 7, MaxBytes: 4000})
		if err != nil {
			w.Fatal(err)
		}
		b := w.open()
		if err := lead(w, b, func(lease *core.Lease) error {
			ctx := lease.Context()
			if got, err := s.Read(ctx, b, "s"); got != nil || err != nil {
				w.Errorf("without a snapshot Read gives %v, %v", got, err)
			}
			if err := appendTo(lease, 20); err != nil {
				return err
			}
			if err := s.Write(ctx, lease, 21, nil); !errors.Is(err, core.ErrInvalid) {
				w.Errorf("a snapshot of an entry beyond the log: %v", err)
			}
			if err := s.Write(ctx, lease, 20, make([]byte, 4001)); !errors.Is(err, core.ErrTooLarge) {
				w.Errorf("a snapshot above MaxBytes: %v", err)
			}
			for range 2 {
				if err := s.Write(ctx, lease, 15, stateAfter(15)); err != nil {
					return err
				}
			}
			if err := s.Write(ctx, lease, 14, stateAfter(14)); !errors.Is(err, core.ErrInvalid) {
				w.Errorf("an older snapshot: %v", err)
			}
			page, err := lease.ReadLog(ctx, 8, 1)
			if err != nil || page.Head.Oldest != 9 {
				w.Errorf("the log begins at %+v, %v, want 9", page, err)
			}
			got, err := s.Read(ctx, b, "s")
			if err != nil || got.Seq != 15 || got.Token != lease.Token() || !bytes.Equal(got.State, stateAfter(15)) {
				w.Errorf("Read gives %+v, %v", got, err)
			}
			if err := s.Write(ctx, lease, 20, nil); err != nil { // an empty state is also a state
				return err
			}
			if got, err = s.Read(ctx, b, "s"); err != nil || got.Seq != 20 || len(got.State) != 0 {
				w.Errorf("Read gives %+v, %v", got, err)
			}
			return nil
		}); err != nil {
			w.Fatal(err)
		}
	})
}

type blobs struct {
	mu   sync.Mutex
	data map[string][]byte
	down bool
	gone []string // names that were deleted
}

func (b *blobs) Put(_ context.Context, name string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data[name] = bytes.Clone(data)
	if b.down {
		return errors.New("put: time-out")
	}
	return nil
}

func (b *blobs) Get(_ context.Context, name string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.data[name]
	if !ok {
		return nil, fmt.Errorf("no blob %s", name)
	}
	return data, nil
}

func (b *blobs) Delete(_ context.Context, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.data, name)
	b.gone = append(b.gone, name)
	return nil
}

// TestSnapshotBlobs: large states are kept outside the store, and old states are removed from the
// Blobs.
func TestSnapshotBlobs(t *testing.T) {
	bubble(t, func(w *world) {
		place := &blobs{data: make(map[string][]byte)}
		s, err := NewSnapshotter(&SnapshotOptions{Blobs: place, Keep: -1})
		if err != nil {
			w.Fatal(err)
		}
		b := w.open()
		if err := lead(w, b, func(lease *core.Lease) error {
			if err := appendTo(lease, 20); err != nil {
				return err
			}
			place.down = true
			if err := s.Write(lease.Context(), lease, 10, stateAfter(10)); err == nil {
				w.Error("a snapshot whose blob was not written was taken for one")
			}
			if got, err := s.Read(lease.Context(), b, "s"); got != nil || err != nil {
				w.Errorf("Read gives %v, %v", got, err)
			}
			place.down = false
			if err := s.Write(lease.Context(), lease, 10, stateAfter(10)); err != nil {
				return err
			}
			for name := range place.data {
				if slices.Contains(place.gone, name) {
					w.Errorf("the name %s is used again", name)
				}
			}
			for _, seq := range []core.Seq{15, 20} {
				if err := s.Write(lease.Context(), lease, seq, stateAfter(seq)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			w.Fatal(err)
		}
		if len(place.data) != 1 {
			w.Errorf("%d blobs are left, want one", len(place.data))
		}
		l := newApplication(w)
		r := run(w, b, &Options{Snapshots: s}, Memory(l.apply, l.restore))
		r.until("s", 20)
		r.end()
		for name := range place.data {
			place.data[name] = []byte("damaged")
		}
		if _, err := s.Read(w.Context(), b, "s"); !errors.Is(err, ErrCorrupt) {
			w.Errorf("a damaged blob is read with %v", err)
		}
		if _, err := (&Snapshotter{}).Read(w.Context(), b, "s"); err == nil {
			w.Error("a snapshot was read without its Blobs")
		}
	})
}

// TestTrimmedAhead: if there is no snapshot, or the Applier cannot restore snapshots, trimmed
// entries are not skipped. Once there is a snapshot, the follower restores it.
func TestTrimmedAhead(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		o.append("s", 10)
		o.commit("s", core.Trim(5))
		with, without := newApplication(w), newApplication(w)
		tailer, err := NewTailer(w.open(), nil)
		if err != nil {
			w.Fatal(err)
		}
		if err := errors.Join(tailer.Follow("with", Memory(with.apply, with.restore), "*"),
			tailer.Follow("without", Memory(without.apply, nil), "*")); err != nil {
			w.Fatal(err)
		}
		r := begin(w, tailer)
		time.Sleep(time.Minute)
		if lag, err := r.shardLag("s"); err != nil || !errors.Is(lag.Err, ErrNoSnapshot) ||
			!errors.Is(lag.Err, core.ErrTrimmed) {
			w.Errorf("the lag is %+v, %v", lag, err)
		}
		s, err := NewSnapshotter(nil)
		if err != nil {
			w.Fatal(err)
		}
		// The owner sends no heartbeats, so another owner takes over.
		if err := lead(w, w.open(), func(lease *core.Lease) error {
			return s.Write(lease.Context(), lease, 8, stateAfter(8))
		}); err != nil {
			w.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if got := with.at("s"); got != 10 || with.from["s"] != 8 {
			w.Errorf("restored entry %d and applied up to %d", with.from["s"], got)
		}
		if lag, err := r.shardLag("s"); err != nil || lag.Applier != "without" || lag.Applied != 0 ||
			!errors.Is(lag.Err, core.ErrUnsupported) {
			w.Errorf("the lag is %+v, %v", lag, err)
		}
		r.end()
	})
}

// TestSnapshotOfLowerToken: a snapshot with a lower token than the last applied entry belongs to a
// different history, and is not restored (T2).
func TestSnapshotOfLowerToken(t *testing.T) {
	bubble(t, func(w *world) {
		s, err := NewSnapshotter(&SnapshotOptions{Keep: -1})
		if err != nil {
			w.Fatal(err)
		}
		b := w.open()
		var token core.Token
		if err := lead(w, b, func(lease *core.Lease) error {
			token = lease.Token()
			if err := appendTo(lease, 10); err != nil {
				return err
			}
			return s.Write(lease.Context(), lease, 8, stateAfter(8))
		}); err != nil {
			w.Fatal(err)
		}
		for above, want := range []core.Seq{10, 0} {
			at := Position{Shard: "s", Seq: 5, Token: token + core.Token(above)}
			p := &inMemory{store: b.Info().StoreID, at: map[string]Position{"s": at}}
			l := newApplication(w)
			r := run(w, w.open(), &Options{Snapshots: s}, Stored(p, l.apply, l.restore))
			time.Sleep(time.Minute)
			if got := l.at("s"); got != want {
				w.Errorf("from entry 5 with token %d, under a snapshot of token %d, applied up to %d, want %d",
					at.Token, token, got, want)
			}
			if lag, err := r.shardLag("s"); err != nil || errors.Is(lag.Err, ErrOrder) != (want == 0) {
				w.Errorf("from token %d the lag is %+v, %v", at.Token, lag, err)
			}
			r.end()
		}
	})
}
