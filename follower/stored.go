package follower

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/core"
)

// Positions stores each shard's position for Stored. File implements Positions. An application can
// also implement Positions itself. An implementation must be safe for concurrent use.
type Positions interface {
	// Load returns the last position saved for each shard.
	Load(ctx context.Context) (Checkpoint, error)
	// Save makes a position durable before it returns nil. Its second argument is Batch.Store.
	// Calls for the same shard never overlap.
	Save(ctx context.Context, store string, p Position) error
}

// Stored returns an Applier that applies a batch and then saves the position. After a crash or an
// error, entries may be applied again. A nil restore is valid.
func Stored(p Positions, apply ApplyFunc, restore RestoreFunc) Restorer {
	return &stored{positions: p, apply: apply, restore: restore}
}

// Memory is like Stored, but keeps the positions in memory. The first Run with this Applier begins
// with the first entry of each shard, or with a snapshot. The next Run continues where the first
// Run ended. A nil restore is valid.
func Memory(apply ApplyFunc, restore RestoreFunc) Restorer {
	return Stored(&inMemory{at: make(map[string]Position)}, apply, restore)
}

type stored struct {
	positions Positions
	apply     ApplyFunc
	restore   RestoreFunc
}

var _ Restorer = (*stored)(nil)

func (s *stored) Load(ctx context.Context) (Checkpoint, error) { return s.positions.Load(ctx) }

func (s *stored) Apply(ctx context.Context, b Batch) error {
	if err := s.apply(ctx, b); err != nil {
		return err
	}
	return s.positions.Save(ctx, b.Store, b.Last())
}

func (s *stored) Restore(ctx context.Context, _ Position, snap *Snapshot) error {
	if s.restore == nil {
		return errNoRestore(snap)
	}
	if err := s.restore(ctx, snap); err != nil {
		return err
	}
	return s.positions.Save(ctx, snap.Store, snap.Position)
}

func errNoRestore(snap *Snapshot) error {
	return fmt.Errorf("tenure: %w: restoring the snapshot %v, which is needed because the log was trimmed: give the "+
		"Applier a RestoreFunc", core.ErrUnsupported, snap.Position)
}

type inMemory struct {
	mu    sync.Mutex
	store string
	at    map[string]Position
}

func (m *inMemory) Load(context.Context) (Checkpoint, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Checkpoint{Store: m.store, Positions: slices.Collect(maps.Values(m.at))}, nil
}

func (m *inMemory) Save(_ context.Context, store string, p Position) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store, m.at[p.Shard] = store, p
	return nil
}
