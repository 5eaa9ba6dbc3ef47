package engine

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// probe uses a scratch row to check that the store honors conditional writes, and that the store
// counts matched rows instead of changed rows (P1).
func (b *Backend) probe(ctx context.Context) error {
	id := rand.Text()
	steps := []struct {
		name string
		want int64
		stmt Statement
		args []any
	}{
		{"a write", 1, probeInsert, []any{id}},
		{"a conditional write", 1, probeUpdate, []any{id, 2, 1}},
		{"a second write under the same condition", 0, probeUpdate, []any{id, 3, 1}},
		{"a write of an equal value", 1, probeUpdate, []any{id, 2, 2}},
		{"a stale condition", 0, probeUpdate, []any{id, 4, 1}},
		{"a removal", 1, probeDelete, []any{id}},
	}
	for _, s := range steps {
		var got int64
		err := b.store.WriteData(ctx, func(ctx context.Context, data *Tx) (err error) {
			got, err = data.exec(ctx, s.stmt, s.args...)
			return err
		})
		if err != nil {
			return err
		}
		if got != s.want {
			return fmt.Errorf("tenure: %w: %s matched %d rows and should match %d: this database does not honour conditions", driver.ErrUnsupported, s.name, got, s.want)
		}
	}
	return nil
}
