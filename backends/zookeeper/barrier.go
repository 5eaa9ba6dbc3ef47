package zookeeper

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
)

// barrier is one write without effect. All calls that asked for one before it was sent share
// it.
type barrier struct {
	done chan struct{}
	at   kv.Rev
	err  error
}

// catchUp returns once the link's server has every write that was acknowledged before the call. It
// also returns a zxid that covers these writes.
//
// ZooKeeper's sync is not enough. The leader answers it from its own tree, which may be behind a
// follower's. A leader that was cut off answers it for some ticks. A server answers a write only
// after it has applied everything before it, and only if it has a majority. Calls share one write.
// A server outside an ensemble has nothing to catch up with, and uses a sync.
func (l *link) catchUp(ctx context.Context, node string) (kv.Rev, error) {
	if err := ctx.Err(); err != nil {
		return 0, notSent(err)
	}
	if !l.admit() {
		return 0, notSent(errEnded)
	}
	began := time.Now()
	l.mu.Lock()
	b, first := l.next, l.next == nil
	if first {
		b = &barrier{done: make(chan struct{})}
		l.next = b
	}
	former := l.sent
	l.mu.Unlock()
	if !first {
		l.calls.Done()
	} else {
		go func() {
			defer l.calls.Done()
			l.raise(b, former, node)
		}()
	}
	select {
	case <-b.done:
		return b.at, b.err
	case <-ctx.Done():
		return 0, l.giveUp(ctx, began)
	}
}

// caughtUp is catchUp without reading the server's zxid. A server outside an ensemble has applied
// every write that it acknowledged.
func (l *link) caughtUp(ctx context.Context, node string) error {
	if l.alone {
		return nil
	}
	_, err := l.catchUp(ctx, node)
	return err
}

// raise sends a barrier once the one before it was answered.
func (l *link) raise(b, former *barrier, node string) {
	if former != nil {
		<-former.done
	}
	l.mu.Lock()
	l.sent, l.next = b, nil
	l.mu.Unlock()
	if l.alone {
		_, b.err = l.conn.Sync(node)
	} else {
		_, b.err = l.conn.Multi(&zk.CheckVersionRequest{Path: node, Version: anyVersion})
	}
	b.at = kv.Rev(l.wire.zxid.Load())
	close(b.done)
}
