package sqlfault

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/system"
)

// Setup is shared by the PostgreSQL and MySQL tests.
type Setup struct {
	Kind    servers.Kind
	Pool    *servers.Pool
	Driver  string // its name in database/sql
	Opener  driver.Opener
	Migrate func(ctx context.Context, dsn string) error
	// Open opens a namespace, and creates it if it is missing.
	Open func(ctx context.Context, dsn, namespace string) (driver.Backend, error)
}

// DB opens a database for the test's own statements.
func (s *Setup) DB(t testing.TB, dsn servers.DSN) *stdsql.DB {
	t.Helper()
	db, err := stdsql.Open(s.Driver, dsn.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// migrated returns a database with the tables.
func (s *Setup) migrated(t testing.TB, server *servers.Server) servers.DSN {
	t.Helper()
	dsn := server.Database(t)
	if err := s.Migrate(t.Context(), dsn.Reveal()); err != nil {
		t.Fatal(err)
	}
	return dsn
}

// System returns a configuration of the system suite with a server for each parallel run.
func (s *Setup) System(t *testing.T) system.Config {
	return outage.SystemConfig(t, s.Opener, system.Parallel(), func() outage.Deployment {
		server := servers.New(t, s.Kind, nil)
		dsn := s.migrated(t, server)
		return outage.Deployment{
			Servers: []*servers.Server{server},
			Addrs:   []string{dsn.Addr()},
			Settings: func(through []string, namespace string) any {
				// A map replaces Settings, which would hide the password.
				return map[string]any{"dsn": dsn.At(through[0]).Reveal(), "namespace": namespace, "create": true}
			},
		}
	})
}

// IdentityTampered overwrites and removes the identity of namespaces while their members run.
func (s *Setup) IdentityTampered(t *testing.T) {
	dsn := s.migrated(t, s.Pool.Get(t, s.Kind, nil))
	db := s.DB(t, dsn)
	outage.Identity(t, func(t *testing.T, namespace string) driver.Backend {
		b, err := s.Open(t.Context(), dsn.Reveal(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() }) // the test may have cut it off
		return b
	}, TamperIdentity(db, db))
}

// LostConnection runs outage.Lost. The arguments are an idle member's number of connections, and
// the time after which it repeats an unanswered poll.
func (s *Setup) LostConnection(t *testing.T, conns int, patience time.Duration) {
	dsn := s.migrated(t, s.Pool.Get(t, s.Kind, nil))
	outage.Lost{Addr: dsn.Addr(), Conns: conns, Notice: patience, Open: func(t *testing.T, addr, namespace string) driver.Backend {
		b, err := s.Open(t.Context(), dsn.At(addr).Reveal(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() }) // the test may have cut it off
		return b
	}}.LostConnection(t)
}

// Tx begins a transaction that is rolled back after the test.
func Tx(t testing.TB, db *stdsql.DB, level stdsql.IsolationLevel) *stdsql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &stdsql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// Exec runs statements on a database or in a transaction.
func Exec(t testing.TB, on interface {
	ExecContext(context.Context, string, ...any) (stdsql.Result, error)
}, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := on.ExecContext(t.Context(), text); err != nil {
			t.Fatal(text, err)
		}
	}
}

// BenchmarkAcquire10000 claims 10,000 shards in one call. The benchmark measures first claims, each
// time in a new database, and claims on the shards of an evicted member.
func BenchmarkAcquire10000(b *testing.B, opened, fresh func(b *testing.B) driver.Backend) {
	b.Run("takeover", func(b *testing.B) {
		be := opened(b)
		s := Join(b, be, "n0")
		_, next := Acquire(b, s, Claims(10_000))
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			successor := Join(b, be, fmt.Sprint("n", i+1))
			b.StartTimer()
			res, err := successor.Evict(b.Context(), []driver.Suspect{{Session: s.ID(), Version: 1}})
			if err != nil || !res[0].Evicted {
				b.Fatal(err, res)
			}
			_, next = Acquire(b, successor, next)
			s = successor
		}
	})
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			be := fresh(b)
			s := Join(b, be, "n")
			b.StartTimer()
			Acquire(b, s, Claims(10_000))
			b.StopTimer()
			if err := be.Close(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}
