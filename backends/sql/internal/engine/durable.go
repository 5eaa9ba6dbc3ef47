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

// A database may flush its log after it has made a commit visible, as InnoDB does. If it
// crashes in between, it may take back what readers saw. It may take back a grant, whose token
// it then grants again, or a commit that its writer found applied. So anything newer than what
// this process knows to be durable is returned only after a barrier. A barrier is a write. It
// is acknowledged when the log is flushed up to it, and so up to everything that was visible
// before. A dialect of such a database defines the statements of barriers.
//
// PostgreSQL and SQLite flush first, PostgreSQL with synchronous_commit as its package requires.
// PostgreSQL needs barriers only if commits wait for a standby. If the writer of a commit gives up
// waiting, the commit is visible, and a promotion of the standby takes it back.
//
// A transaction that wrote something needs no barrier. Neither does a heartbeat. A version that
// was taken back is never written again (see Beat), so the heartbeat only looks lost.

const (
	// barrierSlots is the number of rows that the barriers of all processes write. The lock on a
	// row ends before the flush.
	barrierSlots = 64
	// maxDurable is the number of shards whose heads a process keeps. Heads that it drops cost
	// barriers, not safety.
	maxDurable = 1 << 20
	// barrierCalls is the largest number of concurrent barriers in one process. One covers all
	// reads that came before it began. There is more than one, because a connection may hang.
	barrierCalls = 3
)

// ErrReadOnly is wrapped by errors of Store.Read if the server accepts no writes.
var ErrReadOnly = errors.New("the server is read-only")

func barrierSlot() string { return fmt.Sprintf("barrier-%02d", rand.IntN(barrierSlots)) }

// sight is what an answer shows of the namespace. The zero sight shows nothing.
type sight struct {
	floor  int64 // base + revision
	roster int64
	heads  []driver.ShardHead
}

// durable holds the heads that this process knows to be durable. It is safe for concurrent use.
type durable struct {
	mu    sync.Mutex
	heads map[driver.ShardID]mark
}

// mark is a commit. Token and number grow. After a failover, the number may go back, but the
// token grows (I2).
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

// settle is called before a sight is returned to a caller. It returns when the sight is durable,
// and records that. A transaction that wrote something and was acknowledged is durable with
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

// pass returns when a barrier that began after the call has succeeded, whether this call's or
// another's.
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

// writeBarrier runs one barrier. A server that became read-only has waited for the pending commits.
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

// headAfter reads the head of the items that were read before it, or of later ones. Without
// barriers, it reads nothing.
func (b *Backend) headAfter(ctx context.Context, data *Tx, shard driver.ShardID) (s sight, err error) {
	if !b.showsEarly() {
		return s, nil
	}
	err = data.rows(ctx, headRead, []any{b.name, string(shard)}, func(r Row) error {
		var head driver.Head
		err := b.scanHead(r, shard, new(string), &head)
		if errors.Is(err, driver.ErrDamaged) {
			return nil // nothing is committed after it
		}
		s.heads = append(s.heads, driver.ShardHead{Shard: shard, Head: head})
		return err
	})
	return s, err
}
