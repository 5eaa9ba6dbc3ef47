package follower

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// freshAgain calls Fresh, which causes a read of the heads, and then calls Fresh again.
func (r *follow) freshAgain(shard string, bound time.Duration) error {
	_ = r.Fresh(shard, bound)
	time.Sleep(time.Millisecond)
	return r.Fresh(shard, bound)
}

// TestFreshOnSilence: if the stream and reads hang without an error, Fresh returns ErrStale within
// two pulses, and nil again once the store answers.
func TestFreshOnSilence(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		b := &faultyBackend{Backend: w.open()}
		l := newApplication(w)
		r := run(w, b, &Options{CallTimeout: time.Second}, Memory(l.apply, nil))
		r.until("s", o.append("s", 1))
		for range 100 { // readers call Fresh while the log gets no entries
			if err := r.Fresh("s", 0); err != nil {
				w.Fatalf("while all works Fresh says %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		b.mu.Lock()
		b.tail = func(ctx context.Context, _ driver.Cursor, _ *driver.TailPage, _ error) (*driver.TailPage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		b.mu.Unlock()
		began := time.Now()
		for r.Fresh("s", time.Second) == nil {
			if time.Since(began) > time.Minute {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took > 2*r.o.Pulse+10*time.Millisecond {
			w.Errorf("a silent store was vouched for for %v, want at most two pulses of %v", took, r.o.Pulse)
		}
		b.mu.Lock()
		b.tail = nil
		b.mu.Unlock()
		time.Sleep(r.o.CallTimeout + r.o.Pulse)
		if err := r.Fresh("s", 0); err != nil {
			w.Errorf("after it came back Fresh says %v", err)
		}
		r.end()
	})
}

// TestPulseFindsWhatTheStreamMissed: the stream hangs, but reads work.
func TestPulseFindsWhatTheStreamMissed(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		b := &faultyBackend{Backend: w.open()}
		var hangs atomic.Bool
		b.tail = func(
			ctx context.Context, since driver.Cursor, page *driver.TailPage, err error,
		) (*driver.TailPage, error) {
			if since != "" && hangs.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return page, err
		}
		l := newApplication(w)
		r := run(w, b, nil, Memory(l.apply, nil))
		r.until("s", o.append("s", 1))
		hangs.Store(true)
		_ = r.Fresh("s", 0)
		time.Sleep(10 * time.Millisecond)
		last, began := o.append("s", 1), time.Now()
		r.until("s", last)
		if took := time.Since(began); took > 2*r.o.Pulse {
			w.Errorf("while readers ask an entry that the stream holds back was applied after %v, want two pulses of %v", took, r.o.Pulse)
		}
		r.end()
	})
}

// TestFreshAfterAStop: after a process was stopped, or its machine slept, Fresh does not rely on
// news from before.
func TestFreshAfterAStop(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		l := newApplication(w)
		r := run(w, w.open(), &Options{Resync: time.Hour}, Memory(l.apply, nil))
		r.until("s", o.append("s", 1))
		for name, stop := range map[string]func(){
			"stopped": func() { time.Sleep(10 * time.Second) }, // a stopped process makes no calls
			"asleep":  func() { r.mu.Lock(); r.proven.wall = r.proven.wall.Add(-time.Hour); r.mu.Unlock() },
		} {
			if name == "stopped" {
				r.mu.Lock()
				r.asked = time.Time{} // stops the pulse that Fresh began, too
				r.mu.Unlock()
			}
			stop()
			if err := r.Fresh("s", time.Second); !errors.Is(err, ErrStale) {
				w.Errorf("after it was %s Fresh says %v, want ErrStale", name, err)
			}
			time.Sleep(2 * r.o.Pulse)
			if err := r.Fresh("s", 0); err != nil {
				w.Errorf("some time after it was %s Fresh says %v", name, err)
			}
		}
		r.end()
	})
}

// TestFreshAfterAGap: entries that are written while the process is stopped arrive later, but count
// as being as old as the last proof before the stop.
func TestFreshAfterAGap(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		l := newApplication(w)
		b := &faultyBackend{Backend: w.open()}
		var stopped, held atomic.Bool
		b.tail = func(
			ctx context.Context, since driver.Cursor, page *driver.TailPage, err error,
		) (*driver.TailPage, error) {
			if stopped.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return page, err
		}
		l.fail = func(Batch) error {
			if held.Load() {
				return errors.New("held")
			}
			return nil
		}
		r := run(w, b, &Options{CallTimeout: time.Second}, Memory(l.apply, nil))
		r.until("s", o.append("s", 1))
		if err := r.freshAgain("s", time.Second); err != nil {
			w.Fatal(err)
		}
		stopped.Store(true)
		held.Store(true)
		time.Sleep(3 * r.o.Pulse)
		o.append("s", 1)
		time.Sleep(3 * r.o.Pulse)
		stopped.Store(false)
		for end := time.Now().Add(time.Minute); !provenWithin(r, r.o.Pulse); time.Sleep(time.Millisecond) {
			_ = r.Fresh("s", 0)
			if time.Now().After(end) {
				w.Fatal("no proof in a minute")
			}
		}
		if err := r.Fresh("s", 2*r.o.Pulse); !errors.Is(err, ErrStale) {
			w.Errorf("an entry of the time that it missed is not applied, and Fresh says %v", err)
		}
		held.Store(false)
		r.until("s", 2)
		if err := r.freshAgain("s", 0); err != nil {
			w.Errorf("all is applied, and Fresh says %v", err)
		}
		r.end()
	})
}

func provenWithin(r *follow, d time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proven.age(time.Now()) <= d
}
