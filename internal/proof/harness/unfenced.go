package harness

import (
	"context"
	"errors"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// maxOverrides limits how often one write is sent again, because owner and head may change in
// between.
const maxOverrides = 50

// Unfenced returns the control: a backend like b without fencing tokens. If a write is refused
// because its fence is dead or its number is taken, Unfenced sends it again, under the current
// fence and at the current head. Shards whose names begin with an underscore belong to Tenure, and
// stay fenced. The control shows that the damage is found. No shipped package has such a switch.
func Unfenced(b driver.Backend) driver.Backend {
	return intercept.Wrap(b, func(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
		if err := proceed(ctx); err != nil || c.Op != intercept.Commit {
			return err
		}
		for i, w := range c.Writes {
			if strings.HasPrefix(string(w.Fence.Shard), "_") {
				continue
			}
			for range maxOverrides {
				if !override(ctx, b, &w, c.Committed[i].Err) {
					break
				}
				again, err := c.Session.Commit(ctx, []driver.Write{w})
				if err != nil {
					c.Committed[i] = driver.CommitResult{Err: err}
					break
				}
				c.Committed[i] = again[0]
			}
		}
		return nil
	})
}

// override gives a refused write the fence and number that the store has. It reports whether the
// write should be sent again.
func override(ctx context.Context, b driver.Backend, w *driver.Write, refusal error) bool {
	var conflict *driver.ConflictError
	switch {
	case errors.Is(refusal, driver.ErrFenced):
		owner := ownerOf(ctx, b, w.Fence.Shard, refusal)
		w.Fence.Session, w.Fence.Token = owner.Session, owner.Token
		return owner.Session != ""
	case errors.As(refusal, &conflict) && conflict.Op == driver.NumberConflict:
		if conflict.Head.Number == w.Number && conflict.Head.Nonce == w.Nonce {
			return false // it was applied
		}
		w.Number = conflict.Head.Number + 1
		return true
	}
	return false
}

// ownerOf returns the shard's record from the refusal. If the refusal has none, it reads the
// record.
func ownerOf(ctx context.Context, b driver.Backend, shard driver.ShardID, refusal error) driver.Owner {
	var fenced *driver.FencedError
	if errors.As(refusal, &fenced) && fenced.Current != (driver.Owner{}) {
		return fenced.Current
	}
	v, err := b.Observe(ctx, driver.ObserveQuery{})
	if err != nil {
		return driver.Owner{}
	}
	for _, st := range v.Shards {
		if st.Shard == shard {
			return st.Owner
		}
	}
	return driver.Owner{}
}
