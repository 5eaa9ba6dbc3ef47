package system_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/system"
)

func TestMain(m *testing.M) { os.Exit(system.Main(m, sqlite.Opener())) }

// sqliteStore creates a new database in the test's folder for each seed. Each of the database's
// files has one writer at a time. Therefore, a transaction on both files pauses the store, and a
// transaction on only the members' file blocks heartbeats but not commits.
func sqliteStore(t *testing.T) func(conformance.T, uint64) *system.Store {
	return func(conformance.T, uint64) *system.Store { return sqliteIn(t.TempDir()) }
}

func sqliteIn(dir string) *system.Store {
	path := filepath.Join(dir, "tenure.db")
	occupyAll := func(paths ...string) func(context.Context) (func() error, error) {
		return func(ctx context.Context) (func() error, error) {
			var held []func() error
			release := func() error {
				var errs []error
				for _, f := range held {
					errs = append(errs, f())
				}
				return errors.Join(errs...)
			}
			for _, path := range paths {
				f, err := occupy(ctx, path)
				if err != nil {
					return nil, errors.Join(err, release())
				}
				held = append(held, f)
			}
			return release, nil
		}
	}
	return &system.Store{
		Options: sqlite.Settings{Path: path, Namespace: "system",
			Options: sqlite.Options{PollPeriod: 5 * time.Millisecond}},
		Pause: occupyAll(path, path+"-members"),
		Cut:   occupyAll(path + "-members"),
	}
}

// occupy takes a file's write lock.
func occupy(ctx context.Context, path string) (release func() error, err error) {
	db, err := sqlite.OpenDB(path)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return func() error { return errors.Join(tx.Rollback(), db.Close()) }, nil
}

func TestSystem(t *testing.T) {
	system.Run(t, system.Config{Opener: sqlite.Opener(), Store: sqliteStore(t), Parallel: system.Parallel()})
}

// TestControl removes the fence, and expects damage.
func TestControl(t *testing.T) {
	system.Run(t, system.Config{Opener: sqlite.Opener(), Store: sqliteStore(t), Parallel: system.Parallel(), Seeds: 1,
		Control: true})
}

// TestFresh: a member that has just joined takes over within the TTL.
func TestFresh(t *testing.T) {
	outage.Fresh(t, system.Config{Opener: sqlite.Opener(), Store: sqliteStore(t)})
}
