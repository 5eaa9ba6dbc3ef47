package system

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
)

func TestWire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(testTTL, 1)
		var made atomic.Int64
		do := func(context.Context) error { made.Add(1); return nil }
		const calls = 10_000
		lost := 0
		for range calls {
			if err := w.around(t.Context(), call{kind: callCommit}, do); errors.Is(err, errLost) {
				lost++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		atOnce := made.Load()
		time.Sleep(2 * testTTL)
		synctest.Wait()
		atLast := made.Load()
		for _, c := range []struct {
			what      string
			got, want int64
		}{
			{"lost on the way", calls - atLast, calls * requestsLost / outOfThousand},
			{"delivered late", atLast - atOnce, calls * requestsLate / outOfThousand},
			{"answered in vain", int64(lost) - (calls - atOnce), calls * repliesLost / outOfThousand},
		} {
			if c.got < c.want/2 || c.got > c.want*2 {
				t.Errorf("%d of %d calls were %s, want about %d", c.got, calls, c.what, c.want)
			}
		}
		for range 1000 {
			if err := w.around(t.Context(), call{kind: callClose}, do); err != nil {
				t.Fatalf("a leaving member's call was disturbed: %v", err)
			}
		}
		w.settle()
		for range 1000 {
			if err := w.around(t.Context(), call{kind: callBeat}, do); err != nil {
				t.Fatalf("disturbed when calm: %v", err)
			}
		}
		w.close()
	})
}

func TestWireDropsWhatIsLateAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(testTTL, 1)
		for range 1000 {
			_ = w.around(t.Context(), call{kind: callBeat}, func(context.Context) error { return nil })
		}
		before := time.Now()
		w.close()
		if waited := time.Since(before); waited > 0 {
			t.Errorf("it waited %v for what was late", waited)
		}
	})
}

// within waits for a condition.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
		pause(t.Context(), time.Millisecond)
	}
}

// waitsBehind reports whether a goroutine waits in a gate for a write that is
// held. The lock is the one thing that synctest does not see.
func waitsBehind() bool {
	buf := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "RWMutex).RLock") && strings.Contains(g, "(*gate).around") {
			return true
		}
	}
	return false
}

// Not parallel: waitsBehind looks at all goroutines.
func TestGate(t *testing.T) {
	for _, where := range []holdPoint{holdSend, holdReply} {
		t.Run(string(where), func(t *testing.T) {
			told := make(chan event, 4)
			g := &gate{tell: func(e event) { told <- e }}
			commit := func(ctx context.Context, shard driver.ShardID, made *atomic.Bool) <-chan error {
				out := make(chan error, 1)
				go func() {
					out <- g.around(ctx, call{kind: callCommit, shards: []driver.ShardID{shard}, token: 7}, func(ctx context.Context) error {
						made.Store(true)
						return ctx.Err()
					})
				}()
				return out
			}
			var other, held, behind atomic.Bool
			g.hold("a", where)
			if err := <-commit(t.Context(), "b", &other); err != nil || !other.Load() {
				t.Fatalf("another shard's write was held: %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			first := commit(ctx, "a", &held)
			if e := <-told; e.Is != isHeld || e.Token != 7 {
				t.Errorf("told %+v", e)
			}
			if held.Load() != (where == holdReply) {
				t.Errorf("held at %s: the write was made: %v", where, held.Load())
			}
			second := commit(ctx, "b", &behind)
			within(t, "the second write to wait", waitsBehind)
			if behind.Load() {
				t.Error("a call passed the gate while a write was held")
			}
			cancel() // their callers have given up
			g.send()
			if err := <-first; err != nil || !held.Load() {
				t.Errorf("the held write: %v, made %v", err, held.Load())
			}
			if err := <-second; err != nil || !behind.Load() {
				t.Errorf("the write behind it: %v, made %v", err, behind.Load())
			}
			g.send() // nothing is held: harmless
		})
	}
}

// TestUnfenced shows that the control takes a former owner's write, which the
// backend refuses.
func TestUnfenced(t *testing.T) {
	t.Parallel()
	b, err := memory.Open(t.Context(), memory.New(), "control", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx := t.Context()
	u := tap(unfenced{b}, func(ctx context.Context, _ call, do func(context.Context) error) error { return do(ctx) })
	join := func(id driver.SessionID) driver.Session {
		s, err := u.Join(ctx, driver.Member{Session: id, Node: string(id), TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	former, owner := join("former"), join("owner")
	res, err := former.Acquire(ctx, []driver.Claim{{Shard: "s"}})
	if err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	stale := driver.Write{Fence: res[0].Fence, Number: 1, Nonce: 1, Ops: []driver.Op{{Kind: driver.OpAppend, Value: []byte("stale")}}}
	if res, err = former.Transfer(ctx, []driver.Handover{{Fence: stale.Fence, To: "owner"}}); err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	w := driver.Write{Fence: res[0].Fence, Number: 1, Nonce: 2, Ops: []driver.Op{{Kind: driver.OpAppend, Value: []byte("good")}}}
	if got, err := owner.Commit(ctx, []driver.Write{w}); err != nil || got[0].Err != nil {
		t.Fatal(err, got)
	}
	got, err := former.Commit(ctx, []driver.Write{stale})
	if err != nil || got[0].Err != nil || got[0].Head.Seq != 2 {
		t.Errorf("the control refused a stale write: %v, %+v", err, got)
	}
	if got, err := former.Commit(ctx, []driver.Write{w}); err != nil || got[0].Err != nil && !errors.Is(got[0].Err, driver.ErrConflict) {
		t.Errorf("a repeated write: %v, %+v", err, got)
	}
}
