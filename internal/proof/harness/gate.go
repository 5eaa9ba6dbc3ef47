package harness

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// LateLimit bounds a call that is made after its caller gave up.
const LateLimit = 10 * time.Second

// Point is where a Gate holds a write.
type Point string

// The points.
const (
	BeforeSend Point = "send"  // after core's checks, before it is sent
	AfterReply Point = "reply" // after the store answered, before core knows
)

// Gate holds a write, so that this process can be stopped at the worst moment. While
// a write is held, no other call of this process that writes is under way, so that a
// process stopped there keeps no lock of the store.
//
// A write that waited here, or behind one that did, is sent even if its context has
// ended, as a packet that had left would arrive. The hooks are set before use; the
// methods are safe for concurrent use.
type Gate struct {
	Held func(writes []driver.Write) // a write is held, alone or in a batch
	// Late, if not nil, says how a commit ended that was sent after it had waited:
	// the one that was held, or another behind it.
	Late func(c *intercept.Call, held bool, err error)

	calls sync.RWMutex // read-locked by each call, locked while a write is held

	mu    sync.Mutex
	shard driver.ShardID // whose next write is to be held
	where Point
	open  chan struct{} // closed to send the held writes
	sent  int           // writes that were held and have gone on
}

// Hold makes the shard's next write wait for Send.
func (g *Gate) Hold(shard driver.ShardID, where Point) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
	g.shard, g.where = shard, where
}

// Send lets the held writes go, and holds nothing any more.
func (g *Gate) Send() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shard = ""
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// takes returns the channel that the call has to wait for, if it is the one to be held.
func (g *Gate) takes(c *intercept.Call) (where Point, open <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	named := func(w driver.Write) bool { return w.Fence.Shard == g.shard }
	if g.shard == "" || !slices.ContainsFunc(c.Writes, named) {
		return "", nil
	}
	g.shard = ""
	return g.where, g.open
}

func (g *Gate) count(more int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent += more
	return g.sent
}

// Around is the gate's part in a call. It is an intercept.Around.
func (g *Gate) Around(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
	if !c.Op.Writes() {
		return proceed(ctx)
	}
	if where, open := g.takes(c); open != nil {
		g.calls.Lock()
		defer g.calls.Unlock()
		defer g.count(+1)
		if where == AfterReply {
			err := proceed(ctx)
			g.Held(c.Writes)
			<-open // or the process ends with its input
			return err
		}
		g.Held(c.Writes)
		<-open
		return g.late(ctx, c, true, proceed)
	}
	before := g.count(0)
	g.calls.RLock()
	defer g.calls.RUnlock()
	if c.Op == intercept.Commit && g.count(0) != before {
		return g.late(ctx, c, false, proceed)
	}
	return proceed(ctx)
}

func (g *Gate) late(ctx context.Context, c *intercept.Call, held bool, proceed func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), LateLimit)
	defer cancel()
	err := proceed(ctx)
	if g.Late != nil {
		g.Late(c, held, err)
	}
	return err
}
