package kv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

// Options says how a backend presents a Store.
type Options struct {
	// Backend is the name that Info reports, such as "etcd". Required.
	Backend string
	// Namespace isolates one group of shards from others in the store. Required.
	Namespace string
	// Create writes the namespace's identity if it has none. Without it that is an
	// error, because it may mean a wiped store (rule I1).
	Create bool
	// Incarnation tells one history of the store from another; without spaces. Open
	// records it, and raises the tokens where it finds another on record (rule I2). The
	// Store answers driver.ErrStoreChanged once the store has another. Empty for a store
	// that has none.
	Incarnation string
	// Now is the time by the store's clock, or by this process's where the store does not
	// tell: from it come the tokens under another incarnation. Required with Incarnation.
	Now time.Time
	// Limits of the store. BatchItems, WriteOps and WriteBytes must be positive. With
	// RecordsStay transfers of shards without a head tell no head, since nothing can check
	// that there is none.
	Limits driver.Limits
	// Pipeline is how many batches of one call are under way at once. 0 means 1.
	Pipeline int
	// Fit, if not nil, says how many of the first transactions the store carries in
	// one atomic step, beside a guard of two conditions; at least 1. It is for a store
	// whose room is counted in more than transactions. nil means BatchItems of them, and
	// WriteBytes.
	Fit func(txns []Txn) int
}

func (o *Options) validate() error {
	if o.Backend == "" {
		return fmt.Errorf("tenure: %w: Options.Backend is empty", driver.ErrInvalid)
	}
	if o.Limits.BatchItems <= 0 || o.Limits.WriteOps <= 0 || o.Limits.WriteBytes <= 0 {
		return fmt.Errorf("tenure: %w: Options.Limits needs positive BatchItems, WriteOps and WriteBytes", driver.ErrInvalid)
	}
	if o.Pipeline < 0 {
		return fmt.Errorf("tenure: %w: Options.Pipeline %d is negative", driver.ErrInvalid, o.Pipeline)
	}
	if o.Incarnation != "" && o.Now.IsZero() {
		return fmt.Errorf("tenure: %w: Options.Incarnation without Now", driver.ErrInvalid)
	}
	return nil
}

// Open opens a namespace: it proves that the store honours conditions (rule P1)
// and reads the namespace's identity (rule I1). The Backend owns s and closes it;
// when Open fails, s is still the caller's. ctx bounds the opening only.
func Open(ctx context.Context, s Store, o Options) (*Backend, error) {
	if s == nil {
		return nil, fmt.Errorf("tenure: cannot open namespace %q: %w: Open needs a store", o.Namespace, driver.ErrInvalid)
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	keys, err := kvkeys.New(o.Namespace)
	if err != nil {
		return nil, err
	}
	if err := probe(ctx, s, keys); err != nil {
		return nil, err
	}
	id, rev, err := openIdentity(ctx, s, keys, o.Create)
	if err != nil {
		return nil, err
	}
	if o.Incarnation != "" {
		if id, rev, err = adopt(ctx, s, keys, o.Incarnation, o.Now); err != nil {
			return nil, err
		}
	}
	life, end := context.WithCancel(context.Background())
	b := &Backend{
		store: s, keys: keys, pipeline: max(1, o.Pipeline), fit: o.Fit,
		idRev: rev, base: id.Base, instance: rand.Text(),
		info: driver.Info{Backend: o.Backend, Namespace: o.Namespace, StoreID: id.ID, Limits: o.Limits},
		life: life, end: end,
	}
	b.acked.Store(int64(rev))
	b.leases.init()
	b.mirror.init(keys, id.Base)
	b.tail.init(keys)
	return b, nil
}

func openIdentity(ctx context.Context, s Store, keys kvkeys.Keys, create bool) (identity, Rev, error) {
	id, rev, err := readIdentity(ctx, s, keys)
	if err != nil || rev != 0 {
		return id, rev, err
	}
	if !create {
		return identity{}, 0, &driver.MissingError{
			What: fmt.Sprintf("namespace %q has no identity record", keys),
			Make: "to begin it, open it once with Create; if it was in use before", Err: driver.ErrStoreChanged,
		}
	}
	value, err := encodeJSON(identity{Format: jsonFormat, ID: rand.Text()})
	if err != nil {
		return identity{}, 0, err
	}
	// Two openers may try at once: whichever record is there afterwards counts.
	_, err = s.Apply(ctx, &Batch{Txns: []Txn{{
		If:  []Compare{{Key: keys.Identity(), Rev: Absent}},
		Ops: []Op{{Key: keys.Identity(), Value: value}},
	}}})
	if err != nil {
		return identity{}, 0, fmt.Errorf("tenure: creating namespace %q: %w", keys, err)
	}
	id, rev, err = readIdentity(ctx, s, keys)
	if err == nil && rev == 0 {
		err = fmt.Errorf("tenure: namespace %q: the identity record just written is not there", keys)
	}
	return id, rev, err
}

// readIdentity returns revision 0 if there is no identity record.
func readIdentity(ctx context.Context, s Store, keys kvkeys.Keys) (identity, Rev, error) {
	page, err := s.Get(ctx, keys.Identity())
	if err != nil {
		return identity{}, 0, fmt.Errorf("tenure: reading the identity of namespace %q: %w", keys, err)
	}
	p := page.Pairs[0]
	if p.Rev == 0 {
		return identity{}, 0, nil
	}
	id, err := decodeIdentity(p)
	return id, p.Rev, err
}

// RaiseFloor makes every token granted from now on in a namespace greater than
// above: what an operator does after the store was restored from a backup, with
// the highest token known from logs, marks or metrics. Backends that are open
// answer ErrStoreChanged from then on, and have to be opened again. A floor that
// is already higher stays. A floor beyond this process's clock, from which tokens come
// under another incarnation, is the operator's word that they are above all that were
// granted: the next opening takes its incarnation as it is. It is safe to repeat.
func RaiseFloor(ctx context.Context, s Store, namespace string, above driver.Token) error {
	keys, err := kvkeys.New(namespace)
	if err != nil {
		return err
	}
	if above < 0 || above > maxBase {
		return fmt.Errorf("tenure: %w: floor %d is outside 0 to %d", driver.ErrInvalid, above, maxBase)
	}
	page, err := s.Get(ctx, keys.Identity(), keys.Incarnation())
	if err != nil {
		return fmt.Errorf("tenure: reading the identity of namespace %q: %w", keys, err)
	}
	was, incarnation := page.Pairs[0], page.Pairs[1]
	if was.Rev == 0 {
		return fmt.Errorf("tenure: namespace %q: %w: it has no identity record", namespace, driver.ErrStoreChanged)
	}
	id, err := decodeIdentity(was)
	if err != nil {
		return err
	}
	// Revisions are positive and only grow, so a base of above is enough.
	id.Base = max(id.Base, above)
	value, err := encodeJSON(id)
	if err != nil {
		return err
	}
	txn := Txn{
		If:  []Compare{{Key: was.Key, Rev: was.Rev}},
		Ops: []Op{{Key: was.Key, Value: value}},
	}
	if incarnation.Rev != 0 && id.Base+driver.Token(page.Rev) >= driver.Token(time.Now().UnixMicro()) {
		txn.If = append(txn.If, Compare{Key: incarnation.Key, Rev: incarnation.Rev})
		txn.Ops = append(txn.Ops, Op{Key: incarnation.Key, Delete: true})
	}
	out, err := s.Apply(ctx, &Batch{Txns: []Txn{txn}})
	if err != nil {
		return fmt.Errorf("tenure: raising the floor of namespace %q: %w", namespace, err)
	}
	if len(out.Results) != 1 || out.Results[0].Err != nil {
		return errors.New("tenure: raising the floor: the outcome is unknown: run it again")
	}
	if !out.Results[0].OK {
		return fmt.Errorf("tenure: namespace %q: %w: somebody else wrote the identity record: run it again", namespace, driver.ErrRetry)
	}
	return nil
}
