package follower

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/errtext"
)

const snapshotCalls = 30

// restore replaces the trimmed entries with a snapshot (L3, T6).
func (t *Tailer) restore(ctx context.Context, l *cursor, why error) error {
	trimmed, _ := errors.AsType[*core.TrimmedError](why)
	t.mu.Lock()
	from := l.pos
	t.mu.Unlock()
	r, ok := l.f.applier.(Restorer)
	if !ok {
		return errtext.Errorf("tenure: follower %q is at entry %d and is no Restorer: %w", l.f.name, from.Seq, why)
	}
	read, cancel := context.WithTimeout(ctx, snapshotCalls*t.o.CallTimeout)
	snap, err := t.o.Snapshots.Read(read, t.b, from.Shard)
	cancel()
	switch {
	case err != nil:
		return err
	case snap == nil:
		return errtext.Errorf("tenure: follower %q is at entry %d: %w: %w", l.f.name, from.Seq, ErrNoSnapshot, why)
	case snap.Seq <= from.Seq || snap.Seq+1 < trimmed.Oldest:
		return errtext.Errorf("tenure: follower %q is at entry %d, the snapshot is of entry %d: %w: %w", l.f.name,
			from.Seq,
			snap.Seq, ErrNoSnapshot, why)
	case snap.Token < from.Token:
		return fmt.Errorf("tenure: follower %q is at entry %d with token %d, the snapshot of entry %d has token %d, "+
			"which is lower: %w: refused",
			l.f.name, from.Seq, from.Token, snap.Seq, snap.Token, ErrOrder)
	}
	if err := r.Restore(ctx, from, snap); err != nil {
		return errtext.Errorf("tenure: follower %q: shard %q: restoring the snapshot of entry %d: %w", l.f.name,
			from.Shard,
			snap.Seq, err)
	}
	t.mu.Lock()
	t.learn(l.s, snap.Seq, time.Now())
	l.err = nil
	t.moveTo(l, snap.Position)
	t.mu.Unlock()
	t.event(Event{Kind: Restored, Applier: l.f.name, Position: snap.Position})
	t.o.Logger.LogAttrs(ctx, slog.LevelInfo, "tenure: follower restored a snapshot",
		slog.String("applier", l.f.name),
		slog.String("shard", from.Shard), slog.Int64("from", int64(from.Seq)), slog.Int64("to", int64(snap.Seq)))
	return nil
}
