package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/kvrecord"
)

// adoptTries limits the attempts of adopt while other processes keep writing.
const adoptTries = 5

// adopt records the store's current incarnation in the namespace (I2). If a different incarnation
// was recorded, the same transaction raises the base, so that tokens continue from the current time
// in microseconds since 1970. The store then refuses writes of processes that use the previous
// identity. Stores create less than one revision per microsecond. The later of two failovers or
// restores therefore gets the greater tokens, even if the records show no trace of the earlier one.
// If no incarnation was recorded, or RaiseFloor removed it, the base stays the same.
func adopt(ctx context.Context, s Store, keys kvkeys.Keys, current string, now time.Time) (identity, Rev, error) {
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
			Ops: []Op{{Key: recorded.Key, Value: []byte(kvrecord.Format + " " + current)}},
		}
		if recorded.Rev != 0 {
			l := kvrecord.Line{Rest: recorded.Value}
			l.Format(kvrecord.MaxLen)
			former := string(l.Word())
			if l.Reason != "" {
				return identity{}, 0, corrupt(recorded.Key, l.Reason)
			}
			if former == current {
				return id, was.Rev, nil
			}
			newest := id.Base + driver.Token(max(page.Rev, was.Rev, recorded.Rev))
			next := driver.Token(now.UnixMicro())
			if next <= newest || next > maxBase {
				return identity{}, 0, fmt.Errorf("tenure: namespace %q: %w: the store's history forked, the clock says %s, and token %d may have "+
					"been granted, which is later (microseconds since 1970): set the clock or, if it is right, raise the floor above every token "+
					"granted", keys, driver.ErrStoreChanged, now.UTC().Format(time.RFC3339), newest)
			}
			id.Base += next - newest
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
