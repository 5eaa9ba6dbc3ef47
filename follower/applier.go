package follower

import (
	"context"

	"github.com/tenure-go/tenure/core"
)

// Applier is the application's side of a Tailer. It applies entries and remembers its positions.
// NewSQL, Stored and Memory make an Applier from a function. An application with another store
// implements Applier itself.
//
// The Tailer calls Apply from several goroutines, for different shards. For one shard, calls of
// Apply and Restore never overlap: each begins after the previous one has returned. Both must
// return soon after ctx ends.
type Applier interface {
	// Load returns the position of each shard, and the identity of the store that the positions
	// belong to. At the very first start, both are empty. The Tailer calls Load when Run begins,
	// and after Apply has returned ErrMoved. After an error, the Tailer tries again, unless the
	// error matches core.ErrStoreChanged.
	Load(ctx context.Context) (Checkpoint, error)

	// Apply applies all entries of the batch in order and moves the shard's position to b.Last(),
	// afterwards or in the same step. If Apply returns nil, the batch does not come again in this
	// process.
	//
	// After an error, the Tailer tries again with back-off, from the same entry, perhaps with a
	// batch of another size. If the position and the effect are not one step, an entry may come
	// again after an error or a crash. The Applier must then be idempotent by (shard, seq). An
	// error that matches ErrMoved says that the shard's position is not b.From. The Tailer then
	// calls Load.
	Apply(ctx context.Context, b Batch) error
}

// Restorer is an Applier that can begin at a snapshot. If a shard's log was trimmed ahead of an
// Applier that is not a Restorer, the shard stays at its position. The Tailer reports this.
type Restorer interface {
	Applier
	// Restore replaces the whole state of the snapshot's shard, and moves its position from the
	// given one to the snapshot's. Otherwise, Restore is like Apply.
	Restore(ctx context.Context, from Position, s *Snapshot) error
}

// Checkpoint is the state that an Applier keeps between runs.
type Checkpoint struct {
	Store     string // Batch.Store of the applied entries; empty if there are none
	Positions []Position
}

// Batch is a contiguous part of one shard's log.
type Batch struct {
	Store   string       // the namespace's identity, core.Info.StoreID
	From    Position     // the shard's position before the batch
	Entries []core.Entry // at least one; the first has From.Seq+1. Do not modify them
}

// Shard returns the name of the shard.
func (b Batch) Shard() string { return b.From.Shard }

// Last returns the shard's position after the batch.
func (b Batch) Last() Position {
	e := &b.Entries[len(b.Entries)-1]
	return Position{Shard: b.From.Shard, Seq: e.Seq, Token: e.Token}
}

// ApplyFunc applies the entries of a batch in order, and must be idempotent by
// (shard, seq). See Applier for its goroutines.
type ApplyFunc func(ctx context.Context, b Batch) error

// RestoreFunc replaces the whole state of the snapshot's shard.
type RestoreFunc func(ctx context.Context, s *Snapshot) error
