package harness

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// LateLimit limits a call that is made after its caller gave up.
const LateLimit = 10 * time.Second

// Point is where a Gate holds a write.
type Point string

// The points.
const (
	BeforeSend Point = "send"  // after core's checks, before sending
	AfterReply Point = "reply" // after the store's answer, before core gets it
)

// Gate holds a write, so that this process can be stopped at the worst moment. While it holds a
// write, no other writing call of this process is in flight, so a process stopped there keeps no
// lock of the store.
//
// A write that waited here, or behind a held one, is sent even if its context has ended, like a
// packet that had left. The hooks are set before use. The methods are safe for concurrent use.
type Gate struct {
	Held func(writes []driver.Write) // called when a write is held, alone or in a batch
	// Late, if not nil, gets the result of a commit that was sent after it had waited: the held
	// one, or another one behind it.
	Late func(c *intercept.Call, held bool, err error)

	calls sync.RWMutex // read-locked by each call, locked while a write is held

	mu    sync.Mutex
	shard driver.ShardID // its next write is held
	where Point
	open  chan struct{} // closed to send the held writes
	sent  int           // held writes that have continued
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

// Send sends the held writes, and stops holding.
func (g *Gate) Send() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shard = ""
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// takes returns the channel on which the call must wait, if it is to be held.
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

// Around handles a call. It is an intercept.Around.
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
			<-open // if it never opens, the process ends with its input
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
