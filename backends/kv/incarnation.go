package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/tenure-go/tenure/backends/kv/internal/record"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

const (
	// The base is raised by leastLift, which is more than any number of grants, and a
	// random part below randomLift when the store's history may have forked (I2). Two
	// restores from the same state differ by the random part.
	leastLift  = driver.Token(1) << 40
	randomLift = driver.Token(1) << 44
	// adoptTries is how often adopt looks again after another process wrote the records.
	adoptTries = 5
)

// adopt makes a namespace go on under an incarnation (I2). Where another one is on
// record it raises the base, in the same transaction: processes that use the former
// identity are refused from then on. A namespace from before incarnations were
// recorded gets its first.
func adopt(ctx context.Context, s Store, keys kvkeys.Keys, current string) (identity, Rev, error) {
	for range adoptTries {
		page, err := s.Get(ctx, keys.Identity(), keys.Incarnation())
		if err != nil {
			return identity{}, 0, fmt.Errorf("tenure: reading the incarnation of namespace %q: %w", keys, err)
		}
		was, recorded := page.Pairs[0], page.Pairs[1]
		id, err := decodeIdentity(was)
		if err != nil {
			return identity{}, 0, err
		}
		txn := Txn{
			If:  []Compare{{Key: was.Key, Rev: was.Rev}, {Key: recorded.Key, Rev: recorded.Rev}},
			Ops: []Op{{Key: recorded.Key, Value: []byte(record.Format + " " + current)}},
		}
		if recorded.Rev != 0 {
			l := record.Line{Rest: recorded.Value}
			l.Format(record.MaxLen)
			former := string(l.Word())
			if l.Reason != "" {
				return identity{}, 0, corrupt(recorded.Key, l.Reason)
			}
			if former == current {
				return id, was.Rev, nil
			}
			if id.Base += leastLift + rand.N(randomLift); id.Base > maxBase {
				return identity{}, 0, fmt.Errorf("tenure: namespace %q: %w: its tokens are used up: begin a new namespace",
					keys, driver.ErrUnsupported)
			}
			value, err := encodeJSON(id)
			if err != nil {
				return identity{}, 0, err
			}
			txn.Ops = append(txn.Ops, Op{Key: was.Key, Value: value})
		}
		out, err := s.Apply(ctx, &Batch{Txns: []Txn{txn}})
		if err == nil && len(out.Results) == 1 {
			err = out.Results[0].Err
		}
		if err != nil {
			return identity{}, 0, fmt.Errorf("tenure: namespace %q: recording incarnation %s: open it once as a user who may write %s and %s: %w",
				keys, current, was.Key, recorded.Key, err)
		}
	}
	return identity{}, 0, errors.New("tenure: other processes keep writing the identity record: open again")
}
