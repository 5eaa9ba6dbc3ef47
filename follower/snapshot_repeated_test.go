package follower

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

var tenth = flag.Int("tenth", -1, "which tenth of its points TestSnapshotRepeated plays, 0 to 9; "+
	"-1: all, or with -short one at random")

// fate is the outcome of one step of a Write: a commit, or a call of Blobs.
type fate int

const (
	late    fate = iota // the step takes effect after its caller gave up
	unheard             // the step takes effect immediately, but its answer is lost, and its caller gives up
	dropped             // the step has no effect, and fails after its caller gave up
)

// impatience is how long the test waits for the first Write. slowness is how long that Write's late
// step takes.
const impatience, slowness = 50 * time.Millisecond, 100 * time.Millisecond

var errGone = errors.New("gone")

// repeated is a Write that is abandoned at one of its steps and then repeated. The process dies at
// a step of the second Write.
type repeated struct {
	*world
	raw       driver.Backend // reads without the process's faults
	snapshots *Snapshotter
	blobs     *blobs // nil: chunks

	fate  fate
	at    int        // the step of the first Write that meets the fate
	dies  int        // the step of the second Write that is the process's last; 0: none
	again core.Seq   // the entry of the second Write
	mu    sync.Mutex // guards the fields below
	steps int        // of the Write in progress; -1: none
	write int        // 0, 1 or 2
	dead  bool
	late  sync.WaitGroup
}

func (r *repeated) step(ctx context.Context, do func(context.Context) error) error {
	r.mu.Lock()
	r.steps++
	n, write, dead := r.steps, r.write, r.dead
	if write == 2 && n == r.dies {
		r.dead = true
	}
	r.mu.Unlock()
	if dead {
		return errGone
	}
	if write != 1 || n != r.at {
		err := do(ctx)
		r.whole()
		return err
	}
	switch r.fate {
	case late:
		r.late.Add(1)
		done := make(chan error, 1)
		go func() {
			defer r.late.Done()
			time.Sleep(slowness)
			err := do(context.WithoutCancel(ctx))
			r.whole()
			done <- err
		}()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	case unheard:
		_ = do(ctx)
		r.whole()
	case dropped:
	}
	time.Sleep(slowness)
	return errors.New("time-out")
}

func (r *repeated) around(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
	switch c.Op {
	case intercept.Commit:
		return r.step(ctx, proceed)
	case intercept.Beat, intercept.Release, intercept.Close:
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.dead {
			return errGone
		}
	}
	return proceed(ctx)
}

func (r *repeated) Put(ctx context.Context, name string, data []byte) error {
	return r.step(ctx, func(ctx context.Context) error { return r.blobs.Put(ctx, name, data) })
}

func (r *repeated) Get(ctx context.Context, name string) ([]byte, error) {
	return r.blobs.Get(ctx, name)
}

func (r *repeated) Delete(ctx context.Context, name string) error {
	return r.step(ctx, func(ctx context.Context) error { return r.blobs.Delete(ctx, name) })
}

// whole checks that the store now has a complete snapshot, and every entry after it (T7).
func (r *repeated) whole() {
	page, err := r.raw.ReadLog(r.Context(), "s", 0, 0)
	if err != nil {
		r.Error(err)
		return
	}
	snap, err := r.snapshots.Read(r.Context(), r.raw, "s")
	switch {
	case err != nil:
		r.Errorf("the log begins at entry %d, and the snapshot cannot be read: %v", page.Head.Oldest, err)
	case snap == nil && page.Head.Oldest > 1:
		r.Errorf("the log begins at entry %d, and there is no snapshot", page.Head.Oldest)
	case snap != nil && snap.Seq+1 < page.Head.Oldest:
		r.Errorf("the log begins at entry %d, and the snapshot is of entry %d", page.Head.Oldest, snap.Seq)
	}
}

// run returns the number of steps of each Write. err is nil if the process survived.
func (r *repeated) run() (first, second int, err error) {
	r.raw = r.open()
	owned := lead(r.world, intercept.Wrap(r.open(), r.around), func(lease *core.Lease) error {
		begin := func(write int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.steps, r.write = 0, write
		}
		if err := appendTo(lease, 10); err != nil {
			return err
		}
		if err := r.snapshots.Write(lease.Context(), lease, 10, stateAfter(10)); err != nil {
			return err
		}
		if err := appendTo(lease, 25); err != nil {
			return err
		}
		begin(1)
		ctx, cancel := context.WithTimeout(lease.Context(), impatience)
		err := r.snapshots.Write(ctx, lease, 30, stateAfter(30))
		cancel()
		r.mu.Lock()
		first = r.steps
		r.mu.Unlock()
		if (err == nil) != (first < r.at) {
			r.Errorf("the first Write of %d steps, with step %d %v, returned %v", first, r.at, r.fate, err)
		}
		begin(2)
		err = r.snapshots.Write(lease.Context(), lease, r.again, stateAfter(r.again))
		r.mu.Lock()
		second = r.steps
		r.mu.Unlock()
		begin(0)
		return err
	})
	r.late.Wait()
	r.whole()
	return first, second, owned
}

// TestSnapshotRepeated: a Write is abandoned while one of its steps is in flight. The step takes
// effect immediately, later, or never. The Write is repeated under the same lease, for the same
// entry or a later entry, and the process dies at a step of the second Write. At every instant, the
// store has a complete snapshot and every entry after it. The next owner's Write removes all
// earlier snapshots.
func TestSnapshotRepeated(t *testing.T) {
	from := *tenth
	if from < 0 && testing.Short() {
		from = rand.IntN(10)
	}
	if from >= 0 {
		t.Logf("every tenth point; for the same ones: -args -tenth=%d", from)
	}
	for _, keep := range []int{-1, 5} {
		for _, place := range []string{"chunks", "blobs"} {
			for _, again := range []core.Seq{30, 35} {
				for f, name := range []string{"late", "unheard", "dropped"} {
					if from >= 0 {
						from = (from + 1) % 10 // a different tenth in each case
					}
					t.Run(fmt.Sprintf("keep %d, %s, %s, then %d", keep, place, name, again), func(t *testing.T) {
						t.Parallel()
						repeat(t, from, func(w *world) *repeated {
							r := &repeated{world: w, fate: fate(f), again: again}
							o := &SnapshotOptions{Keep: keep, chunkBytes: 1 << 10}
							if place == "blobs" {
								r.blobs = &blobs{data: make(map[string][]byte)}
								o.Blobs = r
							}
							var err error
							if r.snapshots, err = NewSnapshotter(o); err != nil {
								w.Fatal(err)
							}
							return r
						})
					})
				}
			}
		}
	}
}

// repeat tests every combination of a step of the first Write and a death in the second Write. If
// from is not negative, it tests only every tenth combination, beginning with combination from.
func repeat(t *testing.T, from int, prepare func(w *world) *repeated) {
	cases, last, damaged := 0, 0, 0
	play := func(at, dies int) (first, second int) {
		ok := t.Run(fmt.Sprintf("step %d, dies at %d", at, dies), func(t *testing.T) {
			inBubble(t, func(w *world) {
				r := prepare(w)
				r.at, r.dies = at, dies
				var err error
				first, second, err = r.run()
				if died := dies > 0 && second > dies; (err != nil) != died {
					w.Errorf("the second Write of %d steps returned %v", second, err)
				}
				r.next()
			})
		})
		if cases++; !ok {
			damaged++
		}
		return first, second
	}
	if from >= 0 {
		// Two runs determine how many steps there are: one in which the first Write succeeds, and
		// one in which it fails.
		first, _ := play(math.MaxInt, 0)
		_, second := play(1, 0)
		deaths := second + 1
		for n := from; n < first*deaths; n += 10 {
			play(1+n/deaths, n%deaths)
		}
		t.Logf("%d cases of about %d; damaged: %d", cases, first*deaths, damaged)
		return
	}
	for at, more := 1, true; more; at++ {
		for dies := 0; ; dies++ {
			first, second := play(at, dies)
			if more = at <= first; !more || dies > 0 && second <= dies {
				break
			}
		}
		last = at
	}
	t.Logf("%d cases, of %d steps; damaged: %d", cases, last-1, damaged)
}

// next lets another owner write the next snapshot.
func (r *repeated) next() {
	r.mu.Lock()
	r.dead, r.write = false, 0
	r.mu.Unlock()
	if err := lead(r.world, r.open(), func(lease *core.Lease) error {
		if err := appendTo(lease, 10); err != nil {
			return err
		}
		return r.snapshots.Write(lease.Context(), lease, 45, stateAfter(45))
	}); err != nil {
		r.Errorf("the next owner's Write: %v", err)
	}
	r.whole()
	items, err := r.raw.List(r.Context(), "s", "_snapshot/", 0, 0)
	if err != nil {
		r.Fatal(err)
	}
	left := make([]string, len(items))
	for i := range items {
		left[i] = items[i].Key
	}
	if r.blobs == nil {
		if len(items) != 1+3 {
			r.Errorf("%d items are left, want the manifest and three chunks: %s", len(items), strings.Join(left, " "))
		}
		return
	}
	// If a Put takes effect after the blob's deletion, the blob stays.
	r.blobs.mu.Lock()
	defer r.blobs.mu.Unlock()
	if n := len(r.blobs.data); len(items) != 1 || n != 1 && (r.fate != late || n > 2) {
		r.Errorf("%d blobs and %d items are left, want one blob and the manifest", n, len(items))
	}
}
