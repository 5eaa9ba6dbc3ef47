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

// Options describe a Store that is passed to Open.
type Options struct {
	// Backend is the backend's name in Info, such as "etcd". Required.
	Backend string
	// Namespace isolates one group of shards from others in the store. Required.
	Namespace string
	// Create lets Open write the namespace's identity if it does not exist. Without Create, a missing
	// identity is an error, because the store may have been wiped (rule I1).
	Create bool
	// Incarnation identifies one history of the store, and contains no spaces. Open records the
	// incarnation. If a different incarnation was recorded, Open raises the base of later tokens
	// (rule I2). Once the store's incarnation has changed, the Store must return
	// driver.ErrStoreChanged. Leave Incarnation empty for a store without incarnations.
	Incarnation string
	// Now is the current time by the store's clock, or by this process's clock if the store reports
	// no time. After a change of incarnation, tokens start from this time. Required with
	// Incarnation.
	Now time.Time
	// Limits are the store's limits. BatchItems, WriteOps and WriteBytes must be positive. If
	// RecordsStay is true, transactions cannot check that a head is absent, and a transfer passes
	// on only an existing head.
	Limits driver.Limits
	// Pipeline is the maximum number of batches that one call has in flight. Zero means 1.
	Pipeline int
	// Fit returns the number of leading transactions that fit in one atomic step of the store,
	// together with a guard of two conditions. The result must be at least 1. Set Fit for a store
	// with further limits. If Fit is nil, only BatchItems and WriteBytes limit a step.
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

// Open opens a namespace. Open tests whether the store honors conditions (rule P1) and reads the
// namespace's identity (rule I1). The Backend owns s and closes it. If Open fails, s still belongs
// to the caller. The context limits only Open itself.
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
	o.Limits.WriteOps = min(o.Limits.WriteOps, maxEntries)
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
			Make: "open it once with Create; if it was in use before", Err: driver.ErrStoreChanged,
		}
	}
	value, err := encodeJSON(identity{Format: jsonFormat, ID: rand.Text()})
	if err != nil {
		return identity{}, 0, err
	}
	// If two processes open the namespace at the same time, both use the record written first.
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

// readIdentity returns revision 0 if the namespace has no identity record.
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

// RaiseFloor ensures that all future tokens of a namespace exceed the given token. After a restore
// from a backup, an operator calls RaiseFloor with the highest token known from logs, marks or
// metrics. Backends that are already open then return ErrStoreChanged and must be reopened.
// RaiseFloor never lowers a floor, and is safe to repeat.
//
// If the floor is ahead of this process's clock, RaiseFloor trusts the operator that no granted
// token is higher. The next Open then accepts the store's incarnation without a comparison.
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
	// Because revisions are positive, tokens exceed even a base equal to above.
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
