package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// watcher is a reader in a synctest bubble. It looks for a value that the test sets.
type watcher struct {
	*reader
	store *hinted
	found atomic.Int64
	looks atomic.Int64
}

// newWatcher waits for the heartbeats of a member with a TTL of 10 s.
func newWatcher(hears bool) *watcher {
	store := &hinted{hint: make(chan struct{})}
	store.hears.Store(hears)
	b := &Backend{store: store, closing: make(chan struct{})}
	peer := driver.Member{Session: "peer", TTL: 10 * time.Second}
	asked := []driver.Beat{{Session: peer.Session}}
	b.peers.learn(&driver.View{Reset: true, Members: []driver.Member{peer}})
	b.peers.saw(asked, nil)
	limits := driver.Limits{PollPeriod: 50 * time.Millisecond, IdlePollPeriod: 4 * time.Second}
	w := &watcher{store: store, reader: &reader{b: b, asked: asked, of: Observers, attention: &attention{pace: newPace(limits)}}}
	w.look = func(context.Context) (news, error) {
		w.looks.Add(1)
		return news(w.found.Load()), nil
	}
	return w
}

// begin polls until it finds the test's change. It returns a function that reports the number of
// looks.
func (w *watcher) begin(t *testing.T) (found func() (looks int)) {
	w.found.Store(int64(nothing))
	w.looks.Store(0)
	w.from = waiting{}
	done := make(chan error, 1)
	go func() { done <- w.poll(t.Context()) }()
	synctest.Wait()
	return func() int {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return int(w.looks.Load())
	}
}

// late returns how late a change without a hint is found.
func (w *watcher) late(t *testing.T, after time.Duration) (late time.Duration, looks int) {
	found := w.begin(t)
	time.Sleep(after)
	w.found.Store(int64(states))
	at := time.Now()
	looks = found()
	return time.Since(at), looks
}

// TestLookInVain: a look without an answer is repeated, with more time at each attempt.
func TestLookInVain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, start := newWatcher(false), time.Now()
		w.look = func(ctx context.Context) (news, error) {
			if w.looks.Add(1) <= 2 {
				<-ctx.Done()
				return nothing, ctx.Err()
			}
			return states, nil
		}
		if err := w.poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 3*lookPatience {
			t.Errorf("found after %v, want %v", took, 3*lookPatience)
		}
		w.looks.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), lookPatience/2)
		defer cancel()
		if err := w.poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that gives up gets %v, want its deadline", err)
		}
	})
}

// TestPollsSeldom: a reader that gets hints looks every two fifths of a TTL, and so finds a change
// without a hint. Afterwards, it does not rely on hints for a while.
func TestPollsSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher(true)
		hear := func() { // its heartbeats are seen
			w.b.peers.saw(w.asked, map[driver.SessionID]driver.Version{"peer": driver.Version(time.Now().UnixNano())})
		}
		for range 20 {
			hear()
			found := w.begin(t)
			time.Sleep(4500 * time.Millisecond)
			w.found.Store(int64(heartbeats))
			w.store.broadcast()
			if looks := found(); looks > 3 {
				t.Fatalf("%d looks in 4.5 s, want at most 3", looks)
			}
		}
		hear()
		if late, looks := w.late(t, 100*time.Millisecond); late > 4*time.Second || looks > 2 {
			t.Errorf("a change without a hint was found after %v and %d looks, want 4 s and 2 at most", late, looks)
		}
		hear()
		if late, _ := w.late(t, 500*time.Millisecond); late > 50*time.Millisecond {
			t.Errorf("the next one was found after %v, want a poll period at most", late)
		}
		time.Sleep(2 * distrust)
		hear()
		if _, looks := w.late(t, 4900*time.Millisecond); looks > 3 {
			t.Errorf("%d looks in 5 s after a long time, want at most 3", looks)
		}
		hear()
		w.untold = time.Time{}
		found := w.begin(t)
		w.store.hears.Store(false)
		w.store.broadcast()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		w.found.Store(int64(states))
		at := time.Now()
		if found(); time.Since(at) > 50*time.Millisecond {
			t.Errorf("after hints ceased a change was found after %v, want a poll period at most", time.Since(at))
		}
	})
}

// TestPollsByExpectation: a reader without hints looks often when changes are expected, and
// otherwise twice a second.
func TestPollsByExpectation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher(false)
		version := driver.Version(0)
		hear := func() {
			version++
			w.b.peers.saw(w.asked, map[driver.SessionID]driver.Version{"peer": version})
		}
		hear()
		w.expect()
		for _, c := range []struct{ after, late time.Duration }{
			{time.Second, 50 * time.Millisecond}, {3 * time.Second, 200 * time.Millisecond}, {100 * time.Millisecond, 50 * time.Millisecond},
		} {
			if late, _ := w.late(t, c.after); late > c.late {
				t.Errorf("a change %v after the last was found after %v, want %v at most", c.after, late, c.late)
			}
			hear()
		}
		for range 3 { // the quiet time begins
			time.Sleep(4 * time.Second)
			hear()
		}
		for range 10 {
			found := w.begin(t)
			time.Sleep(3300 * time.Millisecond)
			w.found.Store(int64(heartbeats))
			if looks := found(); looks > 8 {
				t.Fatalf("%d looks in 3.3 s, want at most 8", looks)
			}
			hear()
		}
		for name, stir := range map[string]func(){
			"a call that changes something":    w.expect,
			"a member silent for half its TTL": func() { time.Sleep(6 * time.Second) },
		} {
			time.Sleep(15 * time.Second)
			hear()
			found := w.begin(t)
			time.Sleep(600 * time.Millisecond)
			stir()
			time.Sleep(100 * time.Millisecond)
			w.found.Store(int64(states))
			at := time.Now()
			if found(); time.Since(at) > 50*time.Millisecond {
				t.Errorf("after %s a change was found after %v, want a poll period at most", name, time.Since(at))
			}
			hear()
		}
	})
}

// TestGoesOn: a call with the same query as the previous call waits immediately, and a change
// between the two calls wakes it. A call that requests more data looks first.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	changed := make(chan struct{})
	from := waiting{since: time.Now(), changed: changed, beats: changed, here: changed}
	var l lastView
	l.set("at", map[driver.SessionID]driver.Version{"a": 3, "b": 0}, from)
	for name, c := range map[string]struct {
		q    driver.ObserveQuery
		want waiting
	}{
		"the same":           {driver.ObserveQuery{Since: "at", Beats: []driver.Beat{{Session: "a", Version: 3}, {Session: "b"}}}, from},
		"no heartbeats":      {driver.ObserveQuery{Since: "at"}, waiting{since: from.since, changed: changed}},
		"the full state":     {driver.ObserveQuery{}, waiting{}},
		"another cursor":     {driver.ObserveQuery{Since: "before"}, waiting{}},
		"an older heartbeat": {driver.ObserveQuery{Since: "at", Beats: []driver.Beat{{Session: "a", Version: 2}}}, waiting{}},
		"another session":    {driver.ObserveQuery{Since: "at", Beats: []driver.Beat{{Session: "c"}}}, waiting{}},
	} {
		if got := l.goOn(c.q); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher(true)
		old := w.store.Changed(Observers)
		w.store.broadcast()
		w.from = waiting{since: time.Now(), changed: old}
		w.found.Store(int64(states))
		start := time.Now()
		if err := w.poll(t.Context()); err != nil || time.Since(start) > 50*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestPollEnds: a reader that waits ends with its context.
func TestPollEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := newWatcher(true).poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
