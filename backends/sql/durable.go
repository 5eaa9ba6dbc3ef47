package sql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/tenure-go/tenure/core/driver"
)

// A database that flushes its log after it has made a commit visible, as InnoDB does,
// takes back what readers saw of it if it crashes in between: a grant, whose token it
// then grants again; a commit that its writer found applied. So what is newer than all
// that this process knows to be durable is handed out only after a barrier: a write,
// which is acknowledged when the log is flushed up to it, and with it up to all that
// was visible before. A dialect of such a database has the statements of barriers.
//
// PostgreSQL flushes first, as SQLite does, if synchronous_commit is as its package requires.
// It needs barriers only where commits wait for a standby: a commit whose writer gave up
// waiting is visible, and a promotion of the standby takes it back.
//
// A transaction that wrote something needs no barrier, nor does a heartbeat: the version of
// one that was taken back is never written again (see Beat), so that it only looks like one
// that got lost.

const (
	// barrierSlots is how many rows the barriers of all processes write. The lock on a
	// row ends before the flush.
	barrierSlots = 64
	// maxDurable is of how many shards a process remembers the head. Those that it
	// forgets cost barriers, not safety.
	maxDurable = 1 << 20
	// barrierCalls is how many barriers of one process are under way at most: one covers all
	// reads that came before it began, and a connection that hangs holds up no other.
	barrierCalls = 3
)

// ErrReadOnly is wrapped by errors of Store.Read where the server takes no writes.
var ErrReadOnly = errors.New("the server is read-only")

func barrierSlot() string { return fmt.Sprintf("barrier-%02d", rand.IntN(barrierSlots)) }

// sight is what an answer shows of the namespace; zero is nothing.
type sight struct {
	floor  int64 // base + revision
	roster int64
	heads  []driver.ShardHead
}

// durable are the heads that this process knows to be durable. Safe for concurrent use.
type durable struct {
	mu    sync.Mutex
	heads map[driver.ShardID]mark
}

// mark is a commit. Both of it grow; after a failover the number may not, but the
// token does (I2).
type mark struct {
	token  driver.Token
	number driver.WriteNo
}

func (d *durable) covers(heads []driver.ShardHead) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range heads {
		if m := d.heads[h.Shard]; h.Head.Token > m.token || h.Head.Number > m.number {
			return false
		}
	}
	return true
}

func (d *durable) raise(heads []driver.ShardHead) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range heads {
		m, known := d.heads[h.Shard]
		if h.Head.Token < m.token || h.Head.Token == m.token && h.Head.Number <= m.number {
			continue
		}
		if d.heads == nil || !known && len(d.heads) >= maxDurable {
			d.heads = make(map[driver.ShardID]mark)
		}
		d.heads[h.Shard] = mark{h.Head.Token, h.Head.Number}
	}
}

// showsEarly reports whether the database shows commits that are not durable yet.
func (b *Backend) showsEarly() bool {
	return b.stmts.has(barrierWrite) && (b.early == nil || b.early())
}

// settle is called before anything of a sight is handed out. It returns when that is
// durable, and remembers it. A transaction that wrote something and was acknowledged
// is durable, with all that it saw.
func (b *Backend) settle(ctx context.Context, wrote bool, s sight) error {
	if b.showsEarly() {
		if !wrote && (s.floor > b.floor.Load() || s.roster > b.rosterAt.Load() || !b.durable.covers(s.heads)) {
			if err := b.barrier(ctx); err != nil {
				return err
			}
		}
		b.durable.raise(s.heads)
	}
	raise(&b.floor, s.floor)
	raise(&b.rosterAt, s.roster)
	return nil
}

// barriers lets calls share them. Safe for concurrent use.
type barriers struct {
	places  chan struct{}
	arrived atomic.Int64
	covered atomic.Int64 // the calls that had arrived when a barrier began that succeeded
}

func newBarriers() *barriers { return &barriers{places: make(chan struct{}, barrierCalls)} }

// pass returns when a barrier has succeeded that began after the call: another call's, or
// its own.
func (s *barriers) pass(ctx context.Context, barrier func(context.Context) error) error {
	me := s.arrived.Add(1)
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("tenure: waiting for the barriers under way: %w", driver.Ended(ctx))
	}
	defer func() { <-s.places }()
	if s.covered.Load() >= me {
		return nil
	}
	began := s.arrived.Load()
	err := barrier(ctx)
	if err == nil {
		raise(&s.covered, began)
	}
	return err
}

// barrier returns when all that was visible before is durable.
func (b *Backend) barrier(ctx context.Context) error { return b.barriers.pass(ctx, b.writeBarrier) }

// writeBarrier is a barrier of its own. A server that became read-only waited for the
// commits under way.
func (b *Backend) writeBarrier(ctx context.Context) error {
	err := b.store.Read(ctx, func(ctx context.Context, data, _ *Tx) error {
		for range 3 {
			// The row may have been removed, and made by another process just now.
			for _, how := range []Statement{barrierWrite, barrierInsert} {
				if n, err := data.exec(ctx, how, b.slot); n > 0 || err != nil {
					return err
				}
			}
		}
		return fmt.Errorf("tenure: row %q of %sprobes comes and goes", b.slot, b.stmts.prefix)
	})
	if err == nil || errors.Is(err, ErrReadOnly) {
		return nil
	}
	return fmt.Errorf("tenure: a crash of the server might take back what was read: %w", b.readError(err))
}

// headAfter reads the head that belongs to items that were read before it, or to later
// ones; nothing where there are no barriers.
func (b *Backend) headAfter(ctx context.Context, data *Tx, shard driver.ShardID) (s sight, err error) {
	if !b.showsEarly() {
		return s, nil
	}
	err = data.rows(ctx, headRead, []any{b.name, string(shard)}, func(r Row) error {
		var head driver.Head
		err := b.scanHead(r, shard, new(string), &head)
		if errors.Is(err, driver.ErrDamaged) {
			return nil // nothing is committed on top of it
		}
		s.heads = append(s.heads, driver.ShardHead{Shard: shard, Head: head})
		return err
	})
	return s, err
}
