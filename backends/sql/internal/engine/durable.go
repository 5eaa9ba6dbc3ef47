package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/tenure-go/tenure/core/driver"
)

// Some databases, such as InnoDB, flush their log after they have made a commit visible. A crash
// before the flush may lose changes that readers saw. For example, a grant could be lost, and its
// token could be granted again. A commit could also be lost after its writer found that it was
// applied. Therefore, this package returns data newer than the known durable state only after a
// barrier. A barrier is a write. The database acknowledges it when the log is flushed up to the
// barrier, and therefore with everything that was visible before. The dialect of such a database
// defines the barrier statements.
//
// PostgreSQL and SQLite flush a commit before they show it. PostgreSQL does so only with the
// synchronous_commit setting that package postgres requires. PostgreSQL needs barriers only if
// commits wait for a standby. If the writer of a commit stops waiting, the commit is visible, but a
// promotion of the standby loses it.
//
// A transaction that wrote something needs no barrier, and neither does a heartbeat. A lost version
// is never written again (see Beat), so a lost heartbeat looks like a heartbeat that was never
// sent.

const (
	// barrierSlots is the number of rows that the barriers of all processes share. The lock on a
	// row is released before the flush.
	barrierSlots = 64
	// maxDurable is the number of shards whose heads a process keeps. Dropping a head is safe, but
	// costs a barrier.
	maxDurable = 1 << 20
	// barrierCalls is the maximum number of concurrent barriers in one process. One barrier covers
	// all reads that precede it. More than one barrier may run, because a connection may hang.
	barrierCalls = 3
)

// ErrReadOnly means that the server accepts no writes. Store.Read wraps it.
var ErrReadOnly = errors.New("the server is read-only")

func barrierSlot() string { return fmt.Sprintf("barrier-%02d", rand.IntN(barrierSlots)) }

// sight is the state of the namespace that an answer shows. The zero sight shows nothing.
type sight struct {
	floor  int64 // base + revision
	roster int64
	heads  []driver.ShardHead
	older  bool // a claim was denied because of a row that is older than what its caller saw
}

// durable is the set of heads that this process knows to be durable. It is safe for concurrent use.
type durable struct {
	mu    sync.Mutex
	heads map[driver.ShardID]mark
}

// mark identifies a commit. Both the token and the number increase, except that the number may
// decrease after a failover (I2).
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

// showsEarly reports whether the database shows commits that are not yet durable.
func (b *Backend) showsEarly() bool {
	return b.stmts.has(barrierWrite) && (b.early == nil || b.early())
}

// settle waits until a sight is durable, and records it as durable. Callers may see the sight only
// after settle has returned. An acknowledged transaction that wrote something is durable, and so is
// everything that it saw.
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

// barriers lets calls share barriers. It is safe for concurrent use.
type barriers struct {
	places  chan struct{}
	arrived atomic.Int64
	covered atomic.Int64 // calls that had arrived when a successful barrier began
}

func newBarriers() *barriers { return &barriers{places: make(chan struct{}, barrierCalls)} }

// pass returns once a barrier that began after this call has succeeded. The barrier may belong to
// another call.
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

// barrier returns when everything that was visible before the call is durable.
func (b *Backend) barrier(ctx context.Context) error { return b.barriers.pass(ctx, b.writeBarrier) }

// writeBarrier runs one barrier. A server that has become read-only needs no barrier, because it
// has already waited for the pending commits.
func (b *Backend) writeBarrier(ctx context.Context) error {
	err := b.store.Read(ctx, func(ctx context.Context, data, _ *Tx) error {
		for range 3 {
			// The row may be missing, or another process may have just inserted it.
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

// headAfter reads a head that is at least as new as the items read before. If the database needs no
// barriers, headAfter reads nothing.
func (b *Backend) headAfter(ctx context.Context, data *Tx, shard driver.ShardID) (s sight, err error) {
	if !b.showsEarly() {
		return s, nil
	}
	err = data.rows(ctx, headRead, []any{b.name, string(shard)}, func(r Row) error {
		var head driver.Head
		err := b.scanHead(r, shard, new(string), &head)
		if errors.Is(err, driver.ErrDamaged) {
			return nil // no commit follows the head
		}
		s.heads = append(s.heads, driver.ShardHead{Shard: shard, Head: head})
		return err
	})
	return s, err
}
