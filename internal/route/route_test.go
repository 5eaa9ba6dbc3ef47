package route

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func cause(t *Trip) error { return context.Cause(t.Context) }

// on fails the test unless the trip goes to the server want.
func on(t *testing.T, what string, trip *Trip, want int) *Trip {
	t.Helper()
	if trip.Server != want {
		t.Errorf("%s goes to server %d, want %d", what, trip.Server, want)
	}
	return trip
}

func ends(t *testing.T, what string, trip *Trip, want error) {
	t.Helper()
	if got := cause(trip); !errors.Is(got, want) || (want == nil) != (got == nil) {
		t.Errorf("%s ended with %v, want %v", what, got, want)
	}
}

func TestSilentServerIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := New(ctx, 3, 1)
		on(t, "a heartbeat", r.Beat(ctx), 1).Done(Answered)
		call, watch := on(t, "a call", r.Call(ctx), 1), on(t, "a watch", r.Watch(ctx), 1)
		hangs := on(t, "the next heartbeat", r.Beat(ctx), 1)
		time.Sleep(100 * time.Millisecond)
		second := on(t, "a heartbeat beside it", r.Beat(ctx), 2)
		third := on(t, "one more", r.Beat(ctx), 0)
		time.Sleep(30 * time.Millisecond)
		second.Done(Answered)
		ends(t, "a call on the silent server", call, ErrSilent)
		ends(t, "a watch on it", watch, ErrSilent)
		ends(t, "the heartbeat without an answer", hangs, nil)
		on(t, "a call", r.Call(ctx), 2)
		third.Done(Ended)
		on(t, "a heartbeat", r.Beat(ctx), 2)
		on(t, "one beside it", r.Beat(ctx), 0)
		on(t, "one more", r.Beat(ctx), 2)
		on(t, "one more", r.Beat(ctx), 0)

		// Because of the late answer, this server is one of three again.
		hangs.Done(Answered)
		on(t, "a heartbeat", r.Beat(ctx), 1)
	})
}

// TestStale: while another heartbeat is unanswered, a heartbeat gets a new connection if its
// connection was unused for a long time. If heartbeats overlap all the time, it keeps its
// connection.
func TestStale(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := New(ctx, 2, 0)
	for range stale {
		r.Beat(ctx).Done(Answered)
	}
	hangs, spare := r.Beat(ctx), r.Beat(ctx)
	if hangs.Stale || !spare.Stale || spare.Server != 1 {
		t.Errorf("the connection of the heartbeat is stale: %v; of the one beside it on server %d: %v", hangs.Stale, spare.Server, spare.Stale)
	}
	third, fourth := r.Beat(ctx), r.Beat(ctx)
	if third.Stale || fourth.Stale || fourth.Server != 1 {
		t.Errorf("connections on which heartbeats are under way are stale: %v, %v", third.Stale, fourth.Stale)
	}
	for _, trip := range []*Trip{third, fourth, spare} {
		trip.Done(Answered)
	}
	for range 2 * stale {
		next := r.Beat(ctx)
		hangs.Done(Answered)
		if next.Stale {
			t.Fatal("a connection of heartbeats that overlap is stale")
		}
		hangs = next
	}
}

// TestMute: if both servers are silent, a heartbeat gets a new connection to one of them. The other
// server, which may still answer the oldest heartbeat, keeps its connection.
func TestMute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, pace = 3600 * time.Millisecond, 600 * time.Millisecond
		r := New(t.Context(), 2, 0)
		r.Beat(t.Context()).Done(Answered)
		beat := func() *Trip {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			t.Cleanup(cancel)
			trip := r.Beat(ctx)
			time.Sleep(pace)
			return trip
		}
		for i, want := range []struct {
			server int
			stale  bool
		}{{0, false}, {1, false}, {0, false}, {1, true}, {0, false}} {
			if got := beat(); got.Server != want.server || got.Stale != want.stale {
				t.Errorf("heartbeat %d goes to %d, stale %v, want %v", i, got.Server, got.Stale, want)
			}
		}
	})
}

func TestSlowIsNotMute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, pace, late = 3600 * time.Millisecond, 600 * time.Millisecond, 1700 * time.Millisecond
		r := New(t.Context(), 2, 0)
		r.Beat(t.Context()).Done(Answered)
		for i := range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			t.Cleanup(cancel)
			trip := r.Beat(ctx)
			if trip.Stale {
				t.Errorf("heartbeat %d ends the connection of an earlier one", i)
			}
			time.AfterFunc(late, func() { trip.Done(Answered) })
			time.Sleep(pace)
		}
		time.Sleep(late)
	})
}

// TestStallOfTheStore: servers that answer again at the same time are not suspect, no matter which
// answers first.
func TestStallOfTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := New(ctx, 3, 0)
		call, first := r.Call(ctx), r.Beat(ctx)
		time.Sleep(100 * time.Millisecond)
		second := r.Beat(ctx)
		time.Sleep(200 * time.Millisecond)
		second.Done(Answered)
		ends(t, "a call", call, nil)
		first.Done(Answered)
		on(t, "a call", r.Call(ctx), 0)
	})
}

// TestShortSilence: several sessions' heartbeats are in progress together, and one server answers a
// little later than another.
func TestShortSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := New(ctx, 2, 0)
		call, first, second := r.Call(ctx), r.Beat(ctx), r.Beat(ctx)
		time.Sleep(time.Millisecond)
		second.Done(Answered)
		third := r.Beat(ctx)
		time.Sleep(time.Millisecond)
		on(t, "the third heartbeat", third, 1).Done(Answered)
		time.Sleep(least - 3*time.Millisecond)
		r.Beat(ctx).Done(Answered)
		ends(t, "a call", call, nil)
		first.Done(Answered)
		on(t, "a call", r.Call(ctx), 0)
	})
}

func TestFailureMoves(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := New(ctx, 3, 0)
	call, watch := r.Call(ctx), r.Watch(ctx)
	r.Call(ctx).Done(Ended)
	on(t, "a call after one that was given up", r.Call(ctx), 0).Done(Failed)
	ends(t, "the other call", call, nil)
	ends(t, "a watch", watch, ErrMoved)
	on(t, "a call", r.Call(ctx), 1).Done(Failed)
	on(t, "a call", r.Call(ctx), 2).Done(Failed)
	on(t, "a call when all have failed", r.Call(ctx), 0)
	call.Done(Failed)
	on(t, "a heartbeat", r.Beat(ctx), 1).Done(Answered)
	on(t, "a heartbeat", r.Beat(ctx), 1)
}

// TestElection: while two servers elect a leader and the third refuses connections, heartbeats
// continue to reach all of them. After the election, the next heartbeat is therefore answered.
func TestElection(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := New(ctx, 3, 0)
	r.Beat(ctx).Done(Answered)
	reached := map[int]int{}
	for range 12 {
		b := r.Beat(ctx)
		if reached[b.Server]++; b.Server == 2 {
			b.Done(Failed)
		}
	}
	if reached[0] < 3 || reached[1] < 3 || reached[2] < 1 {
		t.Errorf("heartbeats by server: %v, want at least 3 to the servers 0 and 1, and one to the refusing server 2", reached)
	}
	r.Beat(ctx).Done(Answered)
	on(t, "a heartbeat after an answer", r.Beat(ctx), 2) // its failures no longer count
}

// TestOneServer: a call that began before the answered heartbeat ends, because the network behind
// the server may have lost it. A later call continues.
func TestOneServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := New(ctx, 1, 0)
		old, hangs := r.Call(ctx), r.Beat(ctx)
		time.Sleep(100 * time.Millisecond)
		second := r.Beat(ctx)
		time.Sleep(time.Millisecond)
		late := r.Call(ctx)
		second.Done(Answered)
		ends(t, "a call", old, ErrSilent)
		ends(t, "a later call", late, nil)
		time.Sleep(100 * time.Millisecond)
		r.Beat(ctx).Done(Answered)
		ends(t, "a later call, when that heartbeat still hangs,", late, nil)
		hangs.Done(Failed)
		late.Done(Failed)
		on(t, "a call", r.Call(ctx), 0)
	})
}

func TestLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		r := New(life, 2, 0)
		call := r.Call(t.Context())
		end()
		synctest.Wait()
		ends(t, "a call", call, context.Canceled)
		call.Done(Ended)
		trip := r.Call(t.Context())
		trip.Done(Answered)
		if r.Current() != 0 {
			t.Errorf("the current server is %d, want 0", r.Current())
		}
	})
}
