package harness

import (
	"context"
	"errors"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// maxOverrides limits how many times Unfenced resends a write. A write may need several attempts,
// because the owner or the head may change between attempts.
const maxOverrides = 50

// Unfenced returns the control, which is a backend like b without fencing tokens. If a write is
// refused because its fence is dead or its number is taken, Unfenced resends it with the current
// fence and the next number. Tenure's own shards, whose names begin with an underscore, stay
// fenced. The control shows that the checks find damage. No shipped package contains such a switch.
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

// override updates a refused write to the store's current fence and number, and reports whether to
// resend it.
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

// ownerOf returns the shard's record from the refusal or, if the refusal has none, from the store.
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
