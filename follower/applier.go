package follower

import (
	"context"

	"github.com/tenure-go/tenure/core"
)

// Applier is the application's side of a Tailer: it applies entries and remembers
// how far it came. SQL, Stored and Memory make one of a function; an application
// with another store implements it.
//
// The Tailer calls Apply from several goroutines, for different shards; for one
// shard it calls one at a time, each after the former returned. Calls of Apply and
// Restore for a shard never overlap. Both must return soon after ctx ended.
type Applier interface {
	// Load returns where each shard was left, and the identity of the store that
	// the positions belong to, both empty at the very first start. It is called
	// when Run begins, and after Apply answered ErrMoved. It is tried again after
	// an error, but for one that matches core.ErrStoreChanged.
	Load(ctx context.Context) (Checkpoint, error)

	// Apply applies all entries of the batch and moves the shard's position to
	// b.Last(), in this order or as one step. Entries are to be applied in their
	// order. With nil, the batch does not come again in this process.
	//
	// After an error the Tailer tries again with back-off, beginning at the same
	// entry, perhaps with fewer or more behind it. So unless position and effect
	// are one step, an entry may come again after an error or a crash, and the
	// Applier must be idempotent by (shard, seq). An error that matches ErrMoved
	// says that the shard's position is not b.From: the Tailer then asks Load.
	Apply(ctx context.Context, b Batch) error
}

// Restorer is an Applier that can begin in the middle. Without it a shard whose
// log was trimmed ahead of the follower stays where it is, and says so.
type Restorer interface {
	Applier
	// Restore replaces the whole state of the snapshot's shard, and moves its
	// position from the one given to that of the snapshot. As Apply otherwise.
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
	From    Position     // where the shard is before the batch
	Entries []core.Entry // at least one; the first has From.Seq+1. Not to be modified
}

// Shard is the name of the shard.
func (b Batch) Shard() string { return b.From.Shard }

// Last is where the shard is after the batch.
func (b Batch) Last() Position {
	e := &b.Entries[len(b.Entries)-1]
	return Position{Shard: b.From.Shard, Seq: e.Seq, Token: e.Token}
}

// ApplyFunc applies the entries of a batch in order, and must be idempotent by
// (shard, seq). See Applier for its goroutines.
type ApplyFunc func(ctx context.Context, b Batch) error

// RestoreFunc replaces the whole state of the snapshot's shard.
type RestoreFunc func(ctx context.Context, s *Snapshot) error
