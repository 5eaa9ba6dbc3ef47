package system

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// lateLimit bounds a call that is made after its caller gave up.
const lateLimit = 10 * time.Second

// holdPoint is where a write is held.
type holdPoint string

const (
	holdSend  holdPoint = "send"  // after core's checks, before it is sent
	holdReply holdPoint = "reply" // after the store answered, before core knows
)

// gate holds a write, so that the supervisor can stop this process at the worst
// moment. While a write is held nothing else of this process is in a call that
// writes, so that a process stopped there keeps no lock of the store.
//
// A write that waited here, or behind one that did, is sent whatever its context
// says by then, as a packet that had left would arrive. Safe for concurrent use.
type gate struct {
	tell func(event)

	calls sync.RWMutex // read-locked by each call, locked while a write is held

	mu    sync.Mutex
	shard driver.ShardID // whose next write is to be held
	where holdPoint
	open  chan struct{} // closed to send what is held
	sent  int           // writes that were held and have gone on
}

// hold makes the shard's next write wait for send.
func (g *gate) hold(shard driver.ShardID, where holdPoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
	g.shard, g.where = shard, where
}

// send lets what is held go, and holds nothing any more.
func (g *gate) send() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shard = ""
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// takes returns what the call has to wait for, if it is the one to be held.
func (g *gate) takes(c call) (where holdPoint, open <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shard == "" || !slices.Contains(c.shards, g.shard) {
		return "", nil
	}
	g.shard = ""
	return g.where, g.open
}

func (g *gate) count(more int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent += more
	return g.sent
}

// around is the gate's part in a call.
func (g *gate) around(ctx context.Context, c call, do func(context.Context) error) error {
	if where, open := g.takes(c); open != nil {
		g.calls.Lock()
		defer g.calls.Unlock()
		defer g.count(+1)
		if where == holdReply {
			err := do(ctx)
			g.tell(event{Is: isHeld, Token: c.token})
			<-open // the supervisor's, or the process ends with its input
			return err
		}
		g.tell(event{Is: isHeld, Token: c.token})
		<-open
		err := late(ctx, do)
		g.tell(event{Is: isSent})
		return err
	}
	before := g.count(0)
	g.calls.RLock()
	defer g.calls.RUnlock()
	if c.kind == callCommit && g.count(0) != before {
		return late(ctx, do)
	}
	return do(ctx)
}

func late(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateLimit)
	defer cancel()
	return do(ctx)
}
