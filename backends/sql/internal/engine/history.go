package engine

import (
	"context"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/grants"
)

// The result is the reason why the previous lease ended. No view reads the history column. A lock's
// history is never read. It is written only because omitting it would take another statement per
// batch.
func (part batch) end(own, alive bool) driver.End {
	switch {
	case part.keep && own:
		return driver.EndRenewed
	case part.keep:
		return driver.EndPassed
	case alive:
		return driver.EndPreempted
	}
	return driver.EndGone
}

// History reads the shard's last leases. See driver.Historian.
func (b *Backend) History(ctx context.Context, shard driver.ShardID) ([]driver.Grant, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	if err := driver.CheckShard(shard); err != nil || driver.IsLock(shard) {
		return nil, err
	}
	text := ""
	err := b.store.ReadData(ctx, func(ctx context.Context, data *Tx) error {
		_, err := data.row(ctx, grantsRead, []any{b.name, string(shard)}, &text)
		return err
	})
	if err != nil {
		return nil, b.adopting(ctx, b.readError(err))
	}
	all, why := grants.Parse(text)
	if why != "" {
		return all, b.damaged("shards", string(shard), shard, why)
	}
	return all, nil
}
