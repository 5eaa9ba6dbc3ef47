package harness

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// waitsBehind reports whether a goroutine waits in a gate for a held write. synctest does not see a
// wait for this lock.
func waitsBehind() bool {
	buf := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "RWMutex).RLock") && strings.Contains(g, "(*Gate).Around") {
			return true
		}
	}
	return false
}

// Not parallel, because waitsBehind looks at all goroutines.
func TestGate(t *testing.T) {
	for _, where := range []Point{BeforeSend, AfterReply} {
		t.Run(string(where), func(t *testing.T) {
			tokens := make(chan driver.Token, 4)
			ended := make(chan bool, 4)
			g := &Gate{
				Held: func(writes []driver.Write) { tokens <- writes[0].Fence.Token },
				Late: func(_ *intercept.Call, held bool, err error) {
					if err != nil {
						t.Errorf("a late write: %v", err)
					}
					ended <- held
				},
			}
			commit := func(ctx context.Context, shard driver.ShardID, made *atomic.Bool) <-chan error {
				out := make(chan error, 1)
				go func() {
					c := &intercept.Call{Op: intercept.Commit,
						Writes: []driver.Write{{Fence: driver.Fence{Shard: shard, Token: 7}}}}
					out <- g.Around(ctx, c, func(ctx context.Context) error {
						made.Store(true)
						return ctx.Err()
					})
				}()
				return out
			}
			var other, held, behind atomic.Bool
			g.Hold("a", where)
			if err := <-commit(t.Context(), "b", &other); err != nil || !other.Load() {
				t.Fatalf("another shard's write was held: %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			first := commit(ctx, "a", &held)
			if token := <-tokens; token != 7 {
				t.Errorf("held token %d", token)
			}
			if held.Load() != (where == AfterReply) {
				t.Errorf("held at %s: the write was made: %v", where, held.Load())
			}
			second := commit(ctx, "b", &behind)
			ample.Wait(t, "the second write does not wait", waitsBehind)
			if behind.Load() {
				t.Error("a call passed the gate while a write was held")
			}
			cancel() // their callers have given up
			g.Send()
			if err := <-first; err != nil || !held.Load() {
				t.Errorf("the held write: %v, made %v", err, held.Load())
			}
			if err := <-second; err != nil || !behind.Load() {
				t.Errorf("the write behind it: %v, made %v", err, behind.Load())
			}
			g.Send() // nothing is held: harmless
			if where == BeforeSend && !<-ended {
				t.Error("the write that was held did not come first")
			}
			if <-ended {
				t.Error("the write behind it was reported as held")
			}
		})
	}
}
