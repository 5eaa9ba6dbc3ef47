package follower

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// TestFollow: several Appliers follow different shards, with entries from before and after the
// start and with several tokens.
func TestFollow(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		for _, s := range []driver.ShardID{"orders-1", "orders-2", "eu", "_assigner"} {
			o.append(s, 700) // more than one batch
		}
		all, some, reserved := newApplication(w), newApplication(w), newApplication(w)
		tailer, err := NewTailer(w.open(), nil)
		if err != nil {
			w.Fatal(err)
		}
		for _, err := range []error{
			tailer.Follow("all", Memory(all.apply, nil), "*"),
			tailer.Follow("some", Memory(some.apply, nil), "orders-*", "eu"),
			tailer.Follow("reserved", Memory(reserved.apply, nil), "_assigner"),
		} {
			if err != nil {
				w.Fatal(err)
			}
		}
		r := begin(w, tailer)
		for range 3 {
			for _, s := range []driver.ShardID{"orders-1", "orders-2", "eu", "_assigner", "us"} {
				o.take(s)
				last := o.append(s, 5)
				r.until(string(s), last)
			}
		}
		for _, c := range []struct {
			l     *application
			shard string
			want  core.Seq
		}{
			{all, "orders-1", 715}, {all, "eu", 715}, {all, "us", 15}, {all, "_assigner", 0},
			{some, "orders-2", 715}, {some, "eu", 715}, {some, "us", 0}, {reserved, "_assigner", 715}, {reserved, "eu", 0},
		} {
			if got := c.l.at(c.shard); got != c.want {
				w.Errorf("shard %s: applied up to %d, want %d", c.shard, got, c.want)
			}
		}
		if lag := r.Lag(); lag.Entries != 0 || lag.Time != 0 || lag.Err != nil || lag.Head != 4*715+15 {
			w.Errorf("total lag is %+v", lag)
		}
		r.end()
	})
}

// TestOneStream: an idle follower makes only the blocked call of the stream, and reads of the
// heads.
func TestOneStream(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		for i := range 50 {
			o.append(driver.ShardID(fmt.Sprint("s", i)), 1)
		}
		b := &faultyBackend{Backend: w.open()}
		l := newApplication(w)
		r := run(w, b, nil, Memory(l.apply, nil))
		for i := range 50 {
			r.until(fmt.Sprint("s", i), 1)
		}
		reads, tails := b.count()
		if reads != 50 {
			w.Errorf("catching up with 50 shards took %d reads", reads)
		}
		time.Sleep(10 * time.Minute) // in the bubble's time
		again, after := b.count()
		if again != reads || after-tails > 2*(10*60/30)+2 {
			w.Errorf("10 idle minutes took %d reads and %d calls of the stream", again-reads, after-tails)
		}
		for i := range 50 {
			r.until(fmt.Sprint("s", i), o.append(driver.ShardID(fmt.Sprint("s", i)), 1))
		}
		if pushed, _ := b.count(); pushed != again {
			w.Errorf("50 entries that came by the stream took %d reads", pushed-again)
		}
		r.end()
	})
}

// TestFailingEntry: an entry that cannot be applied is tried again after a back-off and is never
// skipped. The entries before the failing entry are applied, and other shards continue.
func TestFailingEntry(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		o.append("bad", 300)
		l := newApplication(w)
		broken := errors.New("disk full")
		l.fail = func(b Batch) error {
			if b.Shard() == "bad" && b.Last().Seq >= 250 {
				return broken
			}
			return nil
		}
		var failures []Event
		r := run(w, w.open(), &Options{OnEvent: func(e Event) {
			if e.Kind == Failed {
				failures = append(failures, e)
			}
		}}, Memory(l.apply, nil))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := l.at("bad"); got != 249 {
			w.Errorf("applied up to %d, want everything before 250", got)
		}
		if n := len(failures); n < 20 || n > 60 {
			w.Errorf("%d attempts in 10 minutes, want a back-off of up to 30 s", n)
		}
		last := failures[len(failures)-1]
		if last.Position.Seq != 249 || !errors.Is(last.Err, broken) || last.Count < 10 {
			w.Errorf("the last failure is %+v", last)
		}
		if err := r.Fresh("bad", time.Minute); !errors.Is(err, ErrStale) || !errors.Is(err, broken) {
			w.Errorf("Fresh says %v", err)
		}
		r.until("good", o.append("good", 1))
		l.onApply(nil)
		r.until("bad", 300)
		if lag, err := r.shardLag("bad"); err != nil || lag.Err != nil {
			w.Errorf("afterwards the lag is %+v, %v", lag, err)
		}
		r.end()
	})
}

// TestBlockedShard: a blocked shard does not delay other shards, and the number of entries that
// wait in memory is limited.
func TestBlockedShard(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		l := newApplication(w)
		free := make(chan struct{})
		l.fail = func(b Batch) error {
			if b.Shard() == "slow" {
				<-free
			}
			return nil
		}
		r := run(w, w.open(), &Options{Buffer: 64 << 10}, Memory(l.apply, nil))
		r.until("quick", o.append("quick", 1))
		for range 100 {
			o.append("slow", 50)
			r.until("quick", o.append("quick", 1))
		}
		r.mu.Lock()
		buffered := r.buffered
		r.mu.Unlock()
		if buffered > 1<<10 {
			w.Errorf("%d bytes wait for a blocked shard, want a 64th of the buffer at most", buffered)
		}
		lag, err := r.shardLag("slow")
		if err != nil || lag.Head != 5000 || lag.Entries < 4900 {
			w.Errorf("its lag is %+v, %v", lag, err)
		}
		close(free)
		r.until("slow", 5000)
		r.mu.Lock()
		if r.buffered != 0 {
			w.Errorf("%d bytes wait for nobody", r.buffered)
		}
		r.mu.Unlock()
		r.end()
	})
}

// TestStreamIsOnlyAHint: a stream that loses, duplicates or reorders entries, or that falls silent,
// only costs time.
func TestStreamIsOnlyAHint(t *testing.T) {
	for name, tail := range map[string]func(n int, e []driver.Entry) []driver.Entry{
		"every third lost": func(n int, e []driver.Entry) []driver.Entry {
			if n%3 == 0 {
				return nil
			}
			return e
		},
		"all doubled": func(_ int, e []driver.Entry) []driver.Entry { return append(e, e...) },
		"silent":      func(int, []driver.Entry) []driver.Entry { return nil },
		"late": func(n int, e []driver.Entry) []driver.Entry {
			if len(e) < 2 {
				return e
			}
			return e[1:]
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			bubble(t, func(w *world) {
				o := newOwner(w, w.open(), "owner")
				b := &faultyBackend{Backend: w.open()}
				n := 0
				b.tail = func(
					_ context.Context, since driver.Cursor, page *driver.TailPage, err error,
				) (*driver.TailPage, error) {
					if err == nil && since != "" {
						n++
						page.Entries = tail(n, page.Entries)
					}
					return page, err
				}
				l := newApplication(w)
				r := run(w, b, nil, Memory(l.apply, nil))
				last := driver.Seq(0)
				for range 200 {
					last = o.append("s", 3)
					synctest.Wait()
				}
				r.until("s", last)
				r.end()
			})
		})
	}
}

// TestBrokenStream: Fresh does not return nil while the stream may miss entries.
func TestBrokenStream(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		b := &faultyBackend{Backend: w.open()}
		l := newApplication(w)
		down := errors.New("connection refused")
		b.setDown(down)
		r := run(w, b, nil, Memory(l.apply, nil))
		synctest.Wait()
		if err := r.Fresh("s", time.Hour); !errors.Is(err, ErrStale) {
			w.Errorf("before the store was heard Fresh says %v", err)
		}
		b.setDown(nil)
		r.until("s", o.append("s", 1))
		if err := r.Fresh("s", 0); err != nil {
			w.Errorf("Fresh says %v", err)
		}
		b.setDown(down)
		synctest.Wait() // otherwise, the stream may still deliver the entry
		o.append("s", 1)
		time.Sleep(2 * time.Second) // less than two pulses, so only the stream's end can show this
		if err := r.Fresh("s", time.Second); !errors.Is(err, ErrStale) {
			w.Errorf("2 s after the stream broke Fresh says %v", err)
		}
		time.Sleep(18 * time.Second)
		err := r.Fresh("s", 10*time.Second)
		if stale, ok := errors.AsType[*StaleError](err); !ok || stale.Lag.Time < 20*time.Second ||
			!errors.Is(err, down) {
			w.Errorf("20 s after the stream broke Fresh says %v", err)
		}
		b.setDown(nil)
		r.until("s", 2)
		time.Sleep(time.Minute)
		if err := r.freshAgain("s", 0); err != nil {
			w.Errorf("after it came back Fresh says %v", err)
		}
		r.end()
		if err := r.Fresh("s", time.Hour); !errors.Is(err, ErrStale) {
			w.Errorf("after Run Fresh says %v", err)
		}
	})
}

// TestFreshIsHonest: entries from before the start, or from a time without contact with the store,
// do not count as new until they are applied.
func TestFreshIsHonest(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		o.append("s", 5)
		b := &faultyBackend{Backend: w.open()}
		l := newApplication(w)
		step := make(chan struct{})
		l.fail = func(Batch) error { <-step; return nil }
		r := run(w, b, &Options{Batch: 5}, Memory(l.apply, nil))
		time.Sleep(time.Second)
		o.append("s", 5)
		time.Sleep(time.Second)
		if lag, err := r.shardLag("s"); err != nil || !lag.Known || lag.Time < 1000*time.Hour {
			w.Errorf("with entries from before the start the lag is %+v, %v", lag, err)
		}
		step <- struct{}{}
		r.until("s", 5)
		if lag, err := r.shardLag("s"); err != nil || lag.Time != time.Second {
			w.Errorf("with those applied the lag is %+v, %v, want 1s", lag, err)
		}
		step <- struct{}{}
		r.until("s", 10)

		b.setDown(errors.New("connection refused"))
		synctest.Wait() // otherwise, the stream may still deliver the entries
		o.append("s", 5)
		time.Sleep(20 * time.Second)
		b.setDown(nil)
		time.Sleep(time.Minute)
		if lag, err := r.shardLag("s"); err != nil || lag.Err != nil || lag.Time < 80*time.Second ||
			lag.Time > 3*time.Minute {
			w.Errorf("with entries that came in an outage the lag is %+v, %v", lag, err)
		}
		step <- struct{}{}
		r.until("s", 15)
		if err := r.freshAgain("s", 0); err != nil {
			w.Errorf("after it Fresh says %v", err)
		}
		r.end()
	})
}

// TestHeadsAreNoStream: while the stream waits for its next attempt, a read of all heads does not
// count as a working stream.
func TestHeadsAreNoStream(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		o.append("s", 1)
		b := &faultyBackend{Backend: w.open()}
		l := newApplication(w)
		r := run(w, b, &Options{Resync: 10 * time.Second, BackoffMin: 10 * time.Minute, BackoffMax: 10 * time.Minute},
			Memory(l.apply, nil))
		r.until("s", 1)
		synctest.Wait()
		down := errors.New("connection reset")
		b.mu.Lock()
		b.tail = func(
			_ context.Context, since driver.Cursor, page *driver.TailPage, err error,
		) (*driver.TailPage, error) {
			if since != "" {
				return nil, down
			}
			return page, err
		}
		b.mu.Unlock()
		w.store.BreakWatches()
		time.Sleep(25*time.Second + time.Millisecond)
		err := r.Fresh("s", 0)
		if stale, ok := errors.AsType[*StaleError](err); !ok || stale.Lag.Time > 11*time.Second {
			w.Errorf("while nothing is heard but the heads Fresh says %v", err)
		}
		b.mu.Lock()
		b.tail = nil
		b.mu.Unlock()
		time.Sleep(11 * time.Minute)
		if err := r.freshAgain("s", 0); err != nil {
			w.Errorf("after it came back Fresh says %v", err)
		}
		r.end()
	})
}

// TestHeadTooHigh: a reported head beyond the end of the log causes no lasting lag.
func TestHeadTooHigh(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		b := &faultyBackend{Backend: w.open()}
		l := newApplication(w)
		r := run(w, b, &Options{Resync: time.Second}, Memory(l.apply, nil))
		r.until("s", o.append("s", 5))
		lied := false
		b.mu.Lock()
		b.tail = func(_ context.Context, _ driver.Cursor, page *driver.TailPage, err error) (*driver.TailPage, error) {
			if err == nil && len(page.Heads) > 0 && !lied {
				lied = true
				page.Heads[0].Head.Seq += 10
			}
			return page, err
		}
		b.mu.Unlock()
		time.Sleep(time.Minute)
		if lag, err := r.shardLag("s"); err != nil || !lied || lag.Entries != 0 || lag.Time != 0 {
			w.Errorf("the lag is %+v, %v", lag, err)
		}
		r.end()
	})
}

// TestArrivals: the age of unapplied entries is never too small, and an old entry does not make
// other entries look older than necessary.
func TestArrivals(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) time.Time { return time.Unix(1e6, 0).Add(d) }
	s := &shard{cursors: []*cursor{{}}}
	s.learn(5, at(10*time.Second))
	s.learn(9, at(0))
	if got := s.age(5, at(20*time.Second)); got != 20*time.Second {
		t.Errorf("entry 9 counts as %v old, want 20s", got)
	}
	s.reopen()
	if got := s.age(2, at(20*time.Second)); got < 1000*time.Hour {
		t.Errorf("after a position went back its entries count as %v old", got)
	}
	for i := range 1000 {
		s.learn(core.Seq(10+i), at(time.Duration(i)*time.Millisecond))
	}
	s.cursors[0].pos.Seq = 500
	s.prune()
	if got := s.age(500, at(time.Second)); got < 509*time.Millisecond || got > time.Second {
		t.Errorf("entry 501 counts as %v old, want about 509ms", got)
	}
}

// TestLagInTime: lag is measured from when the oldest unapplied entry became known.
func TestLagInTime(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		l := newApplication(w)
		step := make(chan struct{})
		l.fail = func(Batch) error { <-step; return nil }
		r := run(w, w.open(), &Options{Batch: 1}, Memory(l.apply, nil))
		synctest.Wait()
		for range 10 {
			o.append("s", 1)
			synctest.Wait()
			time.Sleep(time.Second)
		}
		for i := range 10 {
			synctest.Wait()
			lag, err := r.shardLag("s")
			if want := time.Duration(10-i) * time.Second; err != nil || lag.Time != want || lag.Entries != int64(10-i) {
				w.Errorf("with %d applied the lag is %d entries and %v, want %v", i, lag.Entries, lag.Time, want)
			}
			step <- struct{}{}
		}
		r.until("s", 10)
		for range 1000 { // with many arrivals, the age is never too small
			o.append("s", 1)
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		lag, _ := r.shardLag("s")
		if lag.Time != 100*time.Second {
			w.Errorf("1000 entries in 100 s, none applied: the lag is %v", lag.Time)
		}
		for range 500 {
			step <- struct{}{}
		}
		r.until("s", 510)
		if lag, _ = r.shardLag("s"); lag.Time < 50*time.Second || lag.Time > 100*time.Second {
			w.Errorf("with half of them applied the lag is %v", lag.Time)
		}
		close(step)
		r.end()
	})
}

// TestWaitForAndSync: WaitFor waits for the caller's own writes, and Sync waits for all writes.
func TestWaitForAndSync(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		b := &faultyBackend{Backend: w.open()}
		b.tail = func(
			ctx context.Context, since driver.Cursor, page *driver.TailPage, err error,
		) (*driver.TailPage, error) {
			if err == nil && since != "" { // the stream has no news
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return page, err
		}
		l := newApplication(w)
		r := run(w, b, nil, Memory(l.apply, nil), "orders-*")
		synctest.Wait()
		last := o.append("orders-1", 3)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := r.WaitFor(ctx, "orders-1", last); !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, ErrStale) {
			w.Errorf("without news WaitFor says %v", err)
		}
		if err := r.Sync(w.Context(), "orders-1"); err != nil || l.at("orders-1") != last {
			w.Errorf("Sync says %v with %d of %d applied", err, l.at("orders-1"), last)
		}
		for _, err := range []error{r.WaitFor(w.Context(), "eu", 1), r.Sync(w.Context(), "eu"), r.Fresh("eu", 0),
			r.WaitFor(w.Context(), "a/b", 1)} {
			if !errors.Is(err, core.ErrInvalid) {
				w.Errorf("for a shard that nobody follows: %v", err)
			}
		}
		for i := range 1000 { // names from untrusted callers leave nothing in memory
			if err := r.Fresh(fmt.Sprint("orders-x", i), 0); err != nil {
				w.Errorf("Fresh of an empty shard: %v", err)
			}
		}
		r.mu.Lock()
		if n := len(r.shards); n != 1 {
			w.Errorf("%d shards are remembered, want 1", n)
		}
		r.mu.Unlock()
		waited := make(chan error, 1)
		go func() { waited <- r.WaitFor(context.Background(), "orders-1", 99) }()
		synctest.Wait()
		r.end()
		if err := <-waited; !errors.Is(err, core.ErrStopped) {
			w.Errorf("after Run WaitFor says %v", err)
		}
	})
}

// TestStuckApplier: Run returns within DrainBudget and names the Applier that is stuck.
func TestStuckApplier(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		l := newApplication(w)
		free := make(chan struct{})
		l.fail = func(Batch) error { <-free; return nil }
		r := run(w, w.open(), nil, Memory(l.apply, nil))
		o.append("s", 1)
		synctest.Wait()
		began := time.Now()
		r.stop()
		if err := r.wait(); !errors.Is(err, ErrStuck) || !strings.Contains(err.Error(), `"s"`) ||
			time.Since(began) != 10*time.Second {
			w.Errorf("Run returned %v after %v", err, time.Since(began))
		}
		close(free)
	})
}

func TestRefusals(t *testing.T) {
	bubble(t, func(w *world) {
		b := w.open()
		for _, o := range []*Options{{Batch: -1}, {Buffer: 1}, {Resync: time.Millisecond}, {BackoffMax: 1},
			{CallTimeout: -1}, {Parallel: 1 << 20}, {Reads: -1}} {
			if _, err := NewTailer(b, o); !errors.Is(err, core.ErrInvalid) {
				w.Errorf("%+v: %v", *o, err)
			}
		}
		tailer, err := NewTailer(b, nil)
		if err != nil {
			w.Fatal(err)
		}
		a := Memory(newApplication(w).apply, nil)
		for _, err := range []error{
			tailer.Follow("a b", a, "*"), tailer.Follow("x", nil, "*"), tailer.Follow("x", a),
			tailer.Follow("x", Memory(nil, nil), "*"), tailer.Follow("x", Stored(nil, newApplication(w).apply, nil), "*"),
			tailer.Follow("x", a, "a*b"), tailer.Follow("x", a, ""),
		} {
			if !errors.Is(err, core.ErrInvalid) {
				w.Errorf("Follow: %v", err)
			}
		}
		if err := errors.Join(tailer.Follow("x", a, "*"), tailer.Follow("y", a, "*")); err != nil {
			w.Error(err)
		}
		if err := tailer.Follow("x", a, "*"); !errors.Is(err, core.ErrInvalid) {
			w.Errorf("Follow twice: %v", err)
		}
		r := begin(w, tailer)
		synctest.Wait()
		if err := tailer.Follow("z", a, "*"); !errors.Is(err, core.ErrInvalid) {
			w.Errorf("Follow during Run: %v", err)
		}
		if err := tailer.Run(w.Context()); !errors.Is(err, core.ErrStopped) {
			w.Errorf("Run twice: %v", err)
		}
		r.end()
	})
}

func TestClosedBackend(t *testing.T) {
	bubble(t, func(w *world) {
		b := w.open()
		r := run(w, b, nil, Memory(newApplication(w).apply, nil))
		synctest.Wait()
		b.Close()
		if err := r.wait(); !errors.Is(err, core.ErrClosed) {
			w.Errorf("Run returned %v", err)
		}
	})
}
