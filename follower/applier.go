package follower

import (
	"context"

	"github.com/tenure-go/tenure/core"
)

// Applier is the application's side of a Tailer. An Applier applies entries and remembers its
// positions. NewSQL, Stored and Memory each create an Applier from a function. An application that
// keeps its positions elsewhere can implement Applier itself.
//
// The Tailer calls Apply from several goroutines for different shards. For one shard, calls to
// Apply and Restore never overlap. Apply and Restore must return soon after ctx ends.
type Applier interface {
	// Load returns the positions of all shards, and the identity of the store to which they belong.
	// At the first start, both are empty. The Tailer calls Load when Run begins, and whenever Apply
	// has returned ErrMoved. If Load returns an error, the Tailer tries again, unless the error
	// matches core.ErrStoreChanged.
	Load(ctx context.Context) (Checkpoint, error)

	// Apply applies all of the batch's entries in order. In the same step or later, Apply moves the
	// shard's position to b.Last(). After Apply has returned nil, this process's Tailer does not
	// pass the batch again.
	//
	// After an error and a back-off, the Tailer tries again from the same entry, perhaps with a
	// batch of a different size. If an Applier does not save the position and the effect in one
	// step, it may receive an entry again after an error or a crash. Such an Applier must be
	// idempotent by (shard, seq). An error that matches ErrMoved means that the shard's position is
	// not b.From. The Tailer then calls Load.
	Apply(ctx context.Context, b Batch) error
}

// Restorer is an Applier that can begin with a snapshot. If an Applier needs trimmed entries but is
// not a Restorer, the shard stays at its position, and the Tailer reports a failure.
type Restorer interface {
	Applier
	// Restore replaces the whole state of the snapshot's shard, and moves the shard's position to
	// the snapshot's position. The argument from is the position before the call. In all other
	// respects, Restore is like Apply.
	Restore(ctx context.Context, from Position, s *Snapshot) error
}

// Checkpoint is the state that an Applier keeps between runs.
type Checkpoint struct {
	Store     string // Batch.Store of the applied entries; empty if no entry was applied
	Positions []Position
}

// Batch is a contiguous part of one shard's log.
type Batch struct {
	Store   string       // the namespace's identity, core.Info.StoreID
	From    Position     // the shard's position before the batch
	Entries []core.Entry // at least one, beginning with From.Seq+1; must not be modified
}

// Shard returns the shard's name.
func (b Batch) Shard() string { return b.From.Shard }

// Last returns the shard's position after the batch.
func (b Batch) Last() Position {
	e := &b.Entries[len(b.Entries)-1]
	return Position{Shard: b.From.Shard, Seq: e.Seq, Token: e.Token}
}

// ApplyFunc applies a batch's entries in order, and must be idempotent by (shard, seq). Applier's
// documentation describes the goroutines that call the function.
type ApplyFunc func(ctx context.Context, b Batch) error

// RestoreFunc replaces the whole state of the snapshot's shard.
type RestoreFunc func(ctx context.Context, s *Snapshot) error
