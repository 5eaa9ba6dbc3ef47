package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/seam"
)

// Internal returns methods that only packages of this module may call.
func (e *Elector) Internal(seam.Key) seam.Elector { return inside{e} }

type inside struct{ *Elector }

func (e inside) Prefer(prefs ...seam.Preference) error {
	for i := range prefs {
		if err := CheckShard(prefs[i].Shard); err != nil {
			return err
		}
	}
	const most = 1024 // per hold of the lock, so that no heartbeat waits long
	for part := range slices.Chunk(prefs, most) {
		in := fsm.Input{Kind: fsm.InPrefer, Shards: make([]ShardID, len(part)), Heirs: make([]fsm.Heirs, len(part))}
		for i, p := range part {
			in.Shards[i], in.Heirs[i] = ShardID(p.Shard), fsm.Heirs{p.First, p.Second}
		}
		e.feed(in)
	}
	return nil
}

func (e inside) SetAside(reasons map[string]seam.Aside) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.aside = reasons
	e.snap.bump()
}

func (e inside) Done() <-chan struct{} { return e.ended }

func (e inside) Stay() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.leaving.IsZero() {
		e.leaving = time.Time{}
		e.snap.bump()
	}
}

func (e inside) WaitOwner(ctx context.Context, shard string) (mine bool, err error) {
	for {
		e.mu.Lock()
		owner, stopped := e.m.Owner(ShardID(shard)).Session, e.phase == stopped
		mine = owner == e.m.Session()
		w := e.snap.changed.wait()
		e.mu.Unlock()
		switch {
		case owner != "":
			return mine, nil
		case stopped:
			return false, fmt.Errorf("tenure: %w", ErrStopped)
		}
		select {
		case <-w:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

func (e inside) News() (age time.Duration, fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.heard == fsm.Never {
		return 0, false
	}
	age, limit := max(0, e.clk.now().Sub(e.heard)), e.o.TTL
	if len(e.contended) == 0 {
		limit += 2 * e.o.Resync
	}
	return age, age <= limit
}
