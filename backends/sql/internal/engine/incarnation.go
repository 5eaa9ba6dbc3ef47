package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// incarnations contains the namespace's recorded incarnation, and the incarnation of the answering
// server. If the store has no incarnation, both fields are empty (I2).
type incarnations struct{ recorded, current string }

// The result reports whether the server's history differs from the recorded history.
func (i incarnations) forked() bool { return i.current != "" && i.recorded != i.current }

// forkedError means that the server's incarnation differs from the recorded one.
type forkedError struct {
	namespace string
	incarnations
}

func (e *forkedError) Error() string {
	return fmt.Sprintf("tenure: namespace %q: the server's history is %.64q and the namespace was used under %.64q: "+
		"a standby was promoted or a copy restored; tokens are raised first, try again",
		e.namespace, e.current, e.recorded)
}

// Is makes a forkedError match driver.ErrRetry, because nothing was applied.
func (e *forkedError) Is(target error) bool { return target == driver.ErrRetry }

// If the error means that the store's history has forked, the new incarnation is recorded before
// the error is returned. A session reported as lost stays lost.
func (b *Backend) adopting(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrSessionLost) && b.showsEarly() {
		if early := b.barrier(ctx); early != nil {
			return early
		}
	}
	var forked *forkedError
	if !errors.As(err, &forked) {
		return err
	}
	adopted := b.adopt(ctx)
	if errors.Is(adopted, driver.ErrStoreChanged) || errors.Is(adopted, driver.ErrUnsupported) {
		return adopted
	}
	if adopted != nil {
		return fmt.Errorf("%w (raising them failed: %v)", err, adopted)
	}
	return err
}

// clockError means that a new incarnation cannot be adopted, because the server's clock is behind
// the granted tokens. If it were adopted, tokens from a different failover could exceed the next
// tokens.
type clockError struct {
	namespace string
	now       time.Time
	floor     int64
}

func (e *clockError) Error() string {
	return fmt.Sprintf("tenure: namespace %q: %v: the server's history forked, its clock says %s, and token %d may have been granted, "+
		"which is later (microseconds since 1970): set the clock or, if it is right, raise the floor above every token granted", e.namespace, driver.ErrStoreChanged, e.now.UTC().Format(time.RFC3339), e.floor)
}

// Is makes a clockError match driver.ErrStoreChanged, so that members halt.
func (e *clockError) Is(target error) bool { return target == driver.ErrStoreChanged }

// adopt records the server's incarnation. In the same transaction, adopt raises the base of the
// tokens, the tokens of all records, the roster's revision and the versions of heartbeats.
// Therefore, no token of a lost grant is granted again, and no lease of the earlier history is
// current. Even if a process saw changes that are now lost, it never sees a number decrease. If the
// recorded incarnation is already the server's, adopt does nothing.
//
// The floor becomes the server's time in microseconds since 1970. Leases are granted at a rate
// below one per microsecond. Therefore, the later of two failovers gets the greater tokens, even if
// its server and its processes do not know about the earlier one.
func (b *Backend) adopt(ctx context.Context) error { return b.adoptAt(ctx, 0) }

// adoptAt is like adopt, but accepts a floor for which an operator vouches, or 0 for none.
func (b *Backend) adoptAt(ctx context.Context, floor int64) error {
	return b.store.WriteOwners(ctx, func(ctx context.Context, data *Tx, roster func() (*Tx, error)) error {
		ns, found, err := readNamespace(ctx, data, namespaceRead, b.name)
		if err != nil || !found || !ns.forked() {
			return err
		}
		next := ns
		next.recorded = ns.current
		if ns.recorded != "" { // otherwise the namespace is older than the column
			to, err := b.raised(ctx, data, ns, floor)
			if err != nil {
				return err
			}
			next.revision = ns.revision + 1
			next.base = to - next.revision
			if err := b.liftRecords(ctx, data, roster, next, next.base-ns.base); err != nil {
				return err
			}
		}
		locked, found, err := readNamespace(ctx, data, namespaceLock, b.name)
		if err != nil {
			return err
		}
		if !found || locked != ns {
			return fmt.Errorf("tenure: namespace %q: %w: it changed meanwhile", b.name, driver.ErrRetry)
		}
		return data.write(ctx, namespaceLift, b.name, next.base, next.revision, next.recorded)
	})
}

// The result is the token floor under a new incarnation.
func (b *Backend) raised(ctx context.Context, data *Tx, ns namespace, floor int64) (int64, error) {
	var now int64
	if _, err := data.row(ctx, clockRead, nil, &now); err != nil {
		return 0, err
	}
	if floor != 0 {
		return min(max(floor, ns.floor()+1, now), int64(maxFloor)), nil
	}
	if known := max(ns.floor(), b.floor.Load()); now <= known || now > int64(maxFloor) {
		return 0, &clockError{b.name, time.UnixMicro(now), known}
	}
	return now, nil
}

// liftRecords locks rows in the same order as all other transactions. No row is added while
// liftRecords runs, because nothing is granted under an unrecorded incarnation.
func (b *Backend) liftRecords(ctx context.Context, data *Tx, open func() (*Tx, error), to namespace, by int64) error {
	var names []string
	err := data.rows(ctx, shardsAll, []any{b.name}, func(r Row) error {
		var name string
		err := r.Scan(&name, new(string), new(int64))
		names = append(names, name)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := b.readShards(ctx, data, shardsLock, names); err != nil {
		return err
	}
	if err := data.write(ctx, shardsLift, b.name, to.floor(), to.revision); err != nil {
		return err
	}
	roster, err := open()
	if err != nil {
		return err
	}
	var revision int64
	if _, err := readRosterRow(ctx, roster, rosterLock, b.name, new(string), &revision); err != nil {
		return err
	}
	if err := roster.write(ctx, rosterRaise, b.name, revision+by); err != nil {
		return err
	}
	return roster.write(ctx, beatsLift, b.name, by)
}
