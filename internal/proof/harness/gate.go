package harness

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// LateLimit limits the duration of a call whose caller has given up.
const LateLimit = 10 * time.Second

// Point is where a Gate holds a write.
type Point string

// These are the points at which a Gate can hold a write.
const (
	BeforeSend Point = "send"  // after core's checks, before sending
	AfterReply Point = "reply" // after the store's answer, before core gets it
)

// Gate holds a write, so that this process can be stopped at the worst moment. While the Gate holds
// a write, this process has no other writing call in flight. A stopped process therefore holds no
// lock in the store.
//
// A write may wait at the Gate or behind a held write. The Gate sends a waiting write even after
// its context has ended, just as a network delivers a late packet. Set the hooks before use. The
// methods are safe for concurrent use.
type Gate struct {
	Held func(writes []driver.Write) // called when a write is held, alone or in a batch
	// Late, if not nil, receives the result of each commit that was sent late: the held commit, and
	// the commits that waited behind it.
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

// Send sends the held writes, and lets later writes pass.
func (g *Gate) Send() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shard = ""
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// If the Gate holds the call, the call must wait on the returned channel.
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

// Around implements intercept.Around.
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
			<-open // if the Gate never opens, the process ends when its input ends
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
