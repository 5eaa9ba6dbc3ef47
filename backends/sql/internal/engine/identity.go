package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// namespace is the namespace's row. A token is base + revision.
type namespace struct {
	id             string
	base, revision int64
	trimmed        int64 // highest revision of a removed shard's row (R2)
	incarnations
}

func (n namespace) floor() int64 { return n.base + n.revision }

// The result reports whether a row that changed after the revision was removed.
func (n namespace) forgot(revision int64) bool { return revision < min(n.trimmed, n.revision) }

// identify reads the identity in both groups of tables. The two copies must agree. With Create,
// identify writes a missing identity, first in the roster. An interrupted creation therefore leaves
// no data and an empty roster, and is not mistaken for wiped data.
func (b *Backend) identify(ctx context.Context, cfg Config) error {
	var ns namespace
	var hasData bool
	err := b.store.ReadData(ctx, func(ctx context.Context, data *Tx) (err error) {
		ns, hasData, err = readNamespace(ctx, data, namespaceRead, b.name)
		return err
	})
	if err != nil {
		return err
	}
	if !hasData && !cfg.Create {
		return &driver.MissingError{
			What: fmt.Sprintf("namespace %q has no identity in this database", b.name),
			Make: "check the path, or open it once with Create",
		}
	}
	id, revision, err := b.identifyRoster(ctx, cfg, ns.id)
	if err != nil {
		return err
	}
	if !hasData {
		if ns, err = b.create(ctx, cfg, id, revision); err != nil {
			return err
		}
	}
	if ns.forked() {
		now, at, err := b.identifyAnew(ctx)
		var behind *clockError
		switch {
		case errors.As(err, &behind): // every call returns it; only RaiseFloor is possible
		case err != nil:
			return err
		default:
			ns, revision = now, at
		}
	}
	if ns.id != id {
		return storeChanged("namespace %q has identity %.64q in the data and %.64q in the roster: "+
			"they belong to different stores; restore both together", b.name, ns.id, id)
	}
	b.id = id
	b.floor.Store(ns.floor())
	b.rosterAt.Store(revision)
	return b.countBuckets(ctx)
}

// identifyAnew adopts the server's incarnation, and reads both identities again (I2).
func (b *Backend) identifyAnew(ctx context.Context) (ns namespace, revision int64, err error) {
	if err := b.adopt(ctx); err != nil {
		return ns, 0, err
	}
	err = b.store.ReadData(ctx, func(ctx context.Context, data *Tx) (err error) {
		ns, _, err = readNamespace(ctx, data, namespaceRead, b.name)
		return err
	})
	if err != nil {
		return ns, 0, err
	}
	err = b.store.ReadRoster(ctx, func(ctx context.Context, roster *Tx) (err error) {
		_, err = readRosterRow(ctx, roster, rosterRead, b.name, new(string), &revision)
		return err
	})
	return ns, revision, err
}

// readRosterRow reads the roster's identity and revision, and reports whether they exist.
func readRosterRow(ctx context.Context, roster *Tx, how Statement, name string, id *string, revision *int64) (bool, error) {
	return roster.row(ctx, how, []any{name}, id, revision, new(string), new(string))
}

// identifyRoster returns the roster's identity and revision. If there is data, the caller passes
// the data's identity, and a missing roster is an error unless NewRoster is set.
func (b *Backend) identifyRoster(ctx context.Context, cfg Config, dataID string) (string, int64, error) {
	var id string
	var revision int64
	var found bool
	err := b.store.ReadRoster(ctx, func(ctx context.Context, roster *Tx) (err error) {
		found, err = readRosterRow(ctx, roster, rosterRead, b.name, &id, &revision)
		return err
	})
	if err != nil || found {
		return id, revision, err
	}
	if dataID != "" && !cfg.NewRoster {
		return "", 0, storeChanged("namespace %q has data but no roster: it was removed; restore it, or open once with NewRoster when no former member runs any more", b.name)
	}
	err = makeRow(ctx, b.store.WriteRoster, func(ctx context.Context, roster *Tx) error {
		found, err := readRosterRow(ctx, roster, rosterLock, b.name, &id, &revision)
		if err != nil || found {
			return err
		}
		if id = dataID; id == "" {
			id = rand.Text()
		}
		if err := roster.write(ctx, rosterInsert, b.name, id); err != nil {
			return err
		}
		_, err = readRosterRow(ctx, roster, rosterLock, b.name, &id, &revision)
		return err
	})
	if err != nil {
		return "", 0, err // a store may still be writing the others
	}
	return id, revision, nil
}

// makeRow runs a transaction that inserts a row unless the row exists. On MariaDB, processes that
// insert the same row concurrently first get shared locks, and then deadlock when they request
// exclusive locks. When such a process retries, the row exists.
func makeRow(ctx context.Context, in func(context.Context, func(context.Context, *Tx) error) error,
	f func(context.Context, *Tx) error) error {
	err := in(ctx, f)
	if errors.Is(err, driver.ErrRetry) {
		err = in(ctx, f)
	}
	return err
}

// create writes the data's identity, unless another process has just written it. A roster that
// already has a revision belongs to lost data.
func (b *Backend) create(ctx context.Context, cfg Config, id string, revision int64) (namespace, error) {
	var ns namespace
	err := makeRow(ctx, b.store.WriteData, func(ctx context.Context, data *Tx) (err error) {
		var found bool
		if ns, found, err = readNamespace(ctx, data, namespaceLock, b.name); err != nil || found {
			return err
		}
		if revision > 0 {
			return storeChanged("namespace %q has members but no data: the data were removed; restore them", b.name)
		}
		if err := data.write(ctx, namespaceInsert, b.name, id); err != nil {
			return err
		}
		for bucket := range cfg.Buckets {
			if err := data.write(ctx, tailInsert, b.name, bucket); err != nil {
				return err
			}
		}
		ns, _, err = readNamespace(ctx, data, namespaceLock, b.name)
		return err
	})
	if err != nil {
		return namespace{}, err // a store may still be writing ns
	}
	return ns, nil
}

func (b *Backend) countBuckets(ctx context.Context) error {
	err := b.store.Read(ctx, func(ctx context.Context, data, _ *Tx) error {
		b.buckets = 0
		return data.rows(ctx, tailsRead, []any{b.name}, func(Row) error {
			b.buckets++
			return nil
		})
	})
	if err == nil && b.buckets == 0 {
		return storeChanged("namespace %q has lost its tail counters: restore the database", b.name)
	}
	return err
}

func readNamespace(ctx context.Context, tx *Tx, how Statement, name string) (ns namespace, found bool, err error) {
	found, err = tx.row(ctx, how, []any{name}, &ns.id, &ns.base, &ns.revision, &ns.trimmed, &ns.recorded, &ns.current)
	return ns, found, err
}

// checkData reads the namespace's row and compares it with the state that this process knows (I1).
// The caller passes the floor known before the transaction began.
func (b *Backend) checkData(ctx context.Context, tx *Tx, how Statement, seen int64) (namespace, error) {
	return b.askData(ctx, tx, how, seen)()
}

// askData queues the read of checkData. The returned function runs the queue and checks the result.
func (b *Backend) askData(ctx context.Context, tx *Tx, how Statement, seen int64) func() (namespace, error) {
	ns := new(namespace)
	found, err := tx.ask(ctx, how, []any{b.name}, &ns.id, &ns.base, &ns.revision, &ns.trimmed, &ns.recorded, &ns.current)
	return func() (namespace, error) {
		if err == nil {
			err = tx.flush(ctx)
		}
		if err != nil {
			return *ns, err
		}
		return *ns, b.compareData(*ns, *found, seen)
	}
}

func (b *Backend) compareData(ns namespace, found bool, seen int64) error {
	switch {
	case !found:
		return storeChanged("namespace %q has lost its identity", b.name)
	case ns.id != b.id:
		return storeChanged("namespace %q has identity %.64q and had %.64q", b.name, ns.id, b.id)
	case ns.forked():
		return &forkedError{b.name, ns.incarnations}
	case ns.floor() < seen:
		return storeChanged("namespace %q has token floor %d and had %d: an older copy was restored; raise the floor above every token granted since", b.name, ns.floor(), seen)
	}
	return nil
}

// checkRoster is like checkData, but for the roster, whose revision it returns.
func (b *Backend) checkRoster(ctx context.Context, tx *Tx, how Statement, seen int64) (int64, error) {
	return b.askRoster(ctx, tx, how, seen)()
}

// askRoster queues the read of checkRoster, as askData does for checkData.
func (b *Backend) askRoster(ctx context.Context, tx *Tx, how Statement, seen int64) func() (int64, error) {
	var id string
	var revision int64
	var in incarnations
	found, err := tx.ask(ctx, how, []any{b.name}, &id, &revision, &in.recorded, &in.current)
	return func() (int64, error) {
		if err == nil {
			err = tx.flush(ctx)
		}
		if err != nil {
			return 0, err
		}
		return revision, b.compareRoster(id, in, revision, *found, seen)
	}
}

func (b *Backend) compareRoster(id string, in incarnations, revision int64, found bool, seen int64) error {
	switch {
	case !found:
		return storeChanged("namespace %q has lost its roster", b.name)
	case id != b.id:
		return storeChanged("the roster of namespace %q has identity %.64q and had %.64q", b.name, id, b.id)
	case in.forked():
		return &forkedError{b.name, in}
	case revision < seen:
		return storeChanged("the roster of namespace %q is at revision %d and was at %d: an older copy was restored; restart every member", b.name, revision, seen)
	}
	return nil
}

// Floor returns the highest token that the namespace may have granted so far.
func (b *Backend) Floor(ctx context.Context) (driver.Token, error) {
	if err := b.begin(ctx); err != nil {
		return 0, err
	}
	var ns namespace
	err := b.store.Read(ctx, func(ctx context.Context, data, _ *Tx) error {
		var found bool
		var err error
		if ns, found, err = readNamespace(ctx, data, namespaceRead, b.name); err == nil && !found {
			err = storeChanged("namespace %q has lost its identity", b.name)
		}
		return err
	})
	if err == nil {
		err = b.settle(ctx, false, sight{floor: ns.floor()})
	}
	return driver.Token(ns.floor()), b.readError(err)
}

// maxFloor is the highest floor. It leaves room for the revisions above a floor.
const maxFloor = driver.Token(1) << 62

// RaiseFloor raises the floor, so that all later tokens are greater than the new floor. An operator
// calls it after restoring a backup. The new floor must not be below the highest token ever
// granted, which marks outside the store may show. The maximum is 1<<62, which leaves room for
// later tokens. The caller also passes the current floor, as reported by Floor. If the floor has
// changed and is still below the new one, the error matches ErrConflict and nothing changes. A
// floor that is already at or above the new one stays unchanged, so RaiseFloor may be repeated.
//
// If the server's clock prevented members from continuing after a failover, RaiseFloor lets them
// continue.
func (b *Backend) RaiseFloor(ctx context.Context, from, to driver.Token) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	if from < 0 || to < 0 || to > maxFloor {
		return invalid("floor %d to %d: a floor is from 0 to %d", from, to, maxFloor)
	}
	var floor int64
	var wrote, forked bool
	err := b.store.WriteData(ctx, func(ctx context.Context, data *Tx) error {
		ns, found, err := readNamespace(ctx, data, namespaceLock, b.name)
		if err != nil {
			return err
		}
		if !found || ns.id != b.id {
			return storeChanged("namespace %q is not the one that was opened", b.name)
		}
		floor = max(ns.floor(), int64(to))
		if forked, wrote = ns.forked(), ns.floor() < int64(to); !wrote {
			return nil
		}
		if ns.floor() != int64(from) {
			return fmt.Errorf("tenure: %w: the floor is %d, not %d: read it again", driver.ErrConflict, ns.floor(), from)
		}
		if forked {
			return nil
		}
		_, err = data.exec(ctx, namespaceRebase, b.name, int64(to)-ns.revision)
		return err
	})
	if err == nil && forked {
		err = b.adoptAt(ctx, floor)
	}
	if err == nil {
		err = b.settle(ctx, wrote, sight{floor: floor})
	}
	return err
}
