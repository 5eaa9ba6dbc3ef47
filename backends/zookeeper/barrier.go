package zookeeper

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
)

// barrier is a write without effect, shared by all calls that requested a barrier before it was
// sent.
type barrier struct {
	done chan struct{}
	at   kv.Rev
	err  error
}

// catchUp waits until the link's server has every write acknowledged before the call, and returns a
// zxid that covers these writes.
//
// ZooKeeper's sync is not enough. The leader answers a sync from its copy of the tree, which may be
// behind a follower's copy. A leader that was cut off still answers syncs for some ticks. By
// contrast, a server answers a write only after a majority has accepted it, and after the server
// has applied all earlier writes. A server outside an ensemble is never behind, so a sync suffices.
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

// caughtUp is like catchUp, but does not read the server's zxid. A server outside an ensemble has
// applied every write that it acknowledged.
func (l *link) caughtUp(ctx context.Context, node string) error {
	if l.alone {
		return nil
	}
	_, err := l.catchUp(ctx, node)
	return err
}

// raise sends a barrier after the previous one was answered.
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
