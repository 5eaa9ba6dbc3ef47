package sql

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tenure-go/tenure/core/driver"
)

// Everything that only grows is raised by leastLift, which is more than any number of
// grants, heartbeats or joins, and a random part below randomLift when the store's
// history may have forked (I2), beyond all that this process has seen. Two failovers
// from the same state, of which the second forgot the first, differ by the random part.
const (
	leastLift  = int64(1) << 40
	randomLift = int64(1) << 44
)

// incarnations are the one that the namespace records, and the one of the server
// that answers; both are empty where the store has none (I2).
type incarnations struct{ recorded, current string }

// forked reports whether the server's history is another than the recorded one.
func (i incarnations) forked() bool { return i.current != "" && i.recorded != i.current }

// forkedError refuses a call under an incarnation that is not the recorded one.
type forkedError struct {
	namespace string
	incarnations
}

func (e *forkedError) Error() string {
	return fmt.Sprintf("tenure: namespace %q: the server's history is %.64q and the namespace was used under %.64q: "+
		"a standby was promoted or a copy restored; tokens are raised first, try again",
		e.namespace, e.current, e.recorded)
}

// Is makes a forkedError match driver.ErrRetry: nothing was applied.
func (e *forkedError) Is(target error) bool { return target == driver.ErrRetry }

// adopting returns the error of a call. If it is that the store's history has
// forked, it first makes the namespace go on under the new one. A session that is said
// to be lost stays so.
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

// adopt records the server's incarnation and raises, in the same transaction, the
// base of the tokens, the tokens of all records, the roster's revision and the
// versions of heartbeats: no token is granted again that a lost grant had, no lease
// of the former history is current, and nothing seems to step back to a process that
// saw what was lost. If the recorded incarnation is the server's it does nothing.
func (b *Backend) adopt(ctx context.Context) error {
	return b.store.WriteOwners(ctx, func(ctx context.Context, data *Tx, roster func() (*Tx, error)) error {
		ns, found, err := readNamespace(ctx, data, namespaceRead, b.name)
		if err != nil || !found || !ns.forked() {
			return err
		}
		next := ns
		next.recorded = ns.current
		if ns.recorded != "" { // else the namespace is older than the column
			by := max(0, b.floor.Load()-ns.base) + leastLift + rand.Int64N(randomLift)
			if ns.base > math.MaxInt64-2*by-ns.revision {
				return fmt.Errorf("tenure: namespace %q: %w: its tokens are used up: begin a new namespace",
					b.name, driver.ErrUnsupported)
			}
			next.base, next.revision = ns.base+by, ns.revision+1
			if err := b.liftRecords(ctx, data, roster, next, by); err != nil {
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

// liftRecords locks rows in the order in which all transactions do. No row is added
// meanwhile: nothing is granted under an incarnation that is not recorded.
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
