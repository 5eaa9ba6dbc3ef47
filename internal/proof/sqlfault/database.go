package sqlfault

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
)

// Database writes to the tables of one namespace without the backend, as another client would. All
// tables are in one database, with their default names. A Database is safe for concurrent use.
type Database struct {
	DB        *stdsql.DB
	Namespace string
}

// tables returns the tables that contain a namespace's rows.
func (d *Database) tables() []string {
	return []string{"namespaces", "shards", "items", "logs", "tails", "rosters", "nodes", "members", "beats",
		"departures"}
}

// exec runs statements in one transaction. Each statement ends in a condition, and exec appends a
// condition for the namespace. The members under test write to the same rows. If the server rolls
// the transaction back for this reason, exec runs the transaction again.
func (d *Database) exec(ctx context.Context, statements ...string) error {
	var err error
	for range 100 {
		if err = d.execOnce(ctx, statements); err == nil || !rolledBack(err) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// rolledBack reports whether the error's text holds the SQLSTATE of a deadlock or of a failed
// serialization, which a Galera node also returns when it certifies a commit.
func rolledBack(err error) bool {
	text := err.Error()
	return strings.Contains(text, "(40001)") || // MySQL and MariaDB
		strings.Contains(text, "SQLSTATE 40001") || strings.Contains(text, "SQLSTATE 40P01")
}

func (d *Database) execOnce(ctx context.Context, statements []string) error {
	tx, err := d.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("%s namespace = '%s'", s, d.Namespace)); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// Compact makes all earlier cursors older than the store's remaining history.
func (d *Database) Compact(ctx context.Context) error {
	return d.exec(ctx, "UPDATE tenure_rosters SET revision = revision + 10000 WHERE")
}

// Tamper writes a shard's or a member's record, or a record that belongs to the shard or member.
func (d *Database) Tamper(ctx context.Context, what conformance.Tampering, name string) error {
	data, roster := Damage(what, name, OfServers())
	if len(data)+len(roster) == 0 {
		return errors.ErrUnsupported
	}
	return d.exec(ctx, append(data, roster...)...)
}

// Wipe removes every row.
func (d *Database) Wipe(ctx context.Context) error {
	var statements []string
	for _, t := range d.tables() {
		statements = append(statements, "DELETE FROM tenure_"+t+" WHERE")
	}
	return d.exec(ctx, statements...)
}

// Snapshot copies every row, and returns a function that writes the rows back.
func (d *Database) Snapshot(ctx context.Context) (restore func(context.Context) error, err error) {
	copies := fmt.Sprintf("copy_%d_", time.Now().UnixNano())
	var statements []string
	for _, t := range d.tables() {
		if err := d.exec(ctx, fmt.Sprintf("CREATE TABLE %s%s AS SELECT * FROM tenure_%s WHERE", copies, t,
			t)); err != nil {
			return nil, err
		}
		statements = append(statements, "DELETE FROM tenure_"+t+" WHERE", "INSERT INTO tenure_"+t+" SELECT * FROM "+
			copies+t+" WHERE")
	}
	return func(ctx context.Context) error { return d.exec(ctx, statements...) }, nil
}

// Fork records an incarnation that differs from the server's. A promotion or a copy has the same
// effect.
func (d *Database) Fork(ctx context.Context) error {
	return d.exec(ctx, "UPDATE tenure_namespaces SET incarnation = 'another' WHERE")
}

// LyingProbe returns a probe statement for an SQL dialect's file. Its condition is always true. The
// suffix follows the statement's parameter, for databases that cannot infer the parameter's type.
func LyingProbe(suffix string) string {
	return "\n-- name: probe_update\nUPDATE tenure_probes SET version = :version" + suffix + " WHERE id = :id AND :seen" + suffix + " > 0;\n"
}

// How contains the options for opening a backend.
type How struct {
	Existing bool // without Create
	Lying    bool // the probe's condition is always true
	Wire     *Wire
}

// Conformance returns the namespace as a Store for the suite. The open function opens a backend on
// a namespace. The backends' calls are counted in calls.
func (d *Database) Conformance(
	calls *Calls, open func(ctx context.Context, namespace string, how How) (driver.Backend, error),
) *conformance.Store {
	with := func(suffix string, how How) func(context.Context) (driver.Backend, error) {
		how.Wire = new(Wire)
		return func(ctx context.Context) (driver.Backend, error) { return open(ctx, d.Namespace+suffix, how) }
	}
	return &conformance.Store{
		Open:         with("", How{}),
		OpenExisting: with("", How{Existing: true}),
		OpenLying:    with("", How{Lying: true}),
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			return with(suffix, How{})(ctx)
		},
		OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
			w := new(Wire)
			b, err := open(ctx, d.Namespace, How{Wire: w})
			return b, &conformance.Wire{DropRequests: w.DropRequests, DropReplies: w.DropReplies, Hold: w.Hold,
				Cut: w.Cut}, err
		},
		Calls: func() conformance.Calls {
			return conformance.Calls{Reads: calls.Reads.Load(), Writes: calls.Writes.Load()}
		},
		Compact: d.Compact, Tamper: d.Tamper, Wipe: d.Wipe, Snapshot: d.Snapshot,
		RaiseFloor: RaiseFloor(with("", How{})),
		Guards:     []conformance.Guard{d.FenceTx(nil)},
	}
}
