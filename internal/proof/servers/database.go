package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	userName       = "tenure"
	adminName      = "tenure_admin"
	databasePrefix = "tenure_test_"
)

var databaseName = regexp.MustCompile(`^tenure_test_[0-9a-f]{16}$`)

// CreateDatabase creates an empty database with a unique name, and returns its DSN. The database
// belongs to the user that User returns. The program must import the driver for this kind of server
// (see the package comment).
func (s *Server) CreateDatabase(ctx context.Context) (DSN, error) {
	name := databasePrefix + randomHex(8)
	statement := "CREATE DATABASE " + name
	if !s.kind.mariadb() && s.user.user != s.admin.user {
		statement += " OWNER " + userName
	}
	err := s.exec(ctx, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	})
	if err != nil {
		return DSN{}, fmt.Errorf("tenure: cannot create a database on %s at %s: %w", s.kind, s.Addr(), err)
	}
	return s.user.Database(name), nil
}

// DropDatabase removes a database that CreateDatabase created. PostgreSQL ends all connections to
// the database. MariaDB waits until ctx ends for transactions in the database.
func (s *Server) DropDatabase(ctx context.Context, d DSN) error {
	if !databaseName.MatchString(d.database) {
		return fmt.Errorf("tenure: database %q was not created by CreateDatabase", d.database)
	}
	statement := "DROP DATABASE IF EXISTS " + d.database
	if !s.kind.mariadb() {
		statement += " WITH (FORCE)"
	}
	err := s.exec(ctx, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, statement)
		return err
	})
	if err != nil {
		return fmt.Errorf("tenure: cannot drop database %s on %s at %s: %w", d.database, s.kind, s.Addr(), err)
	}
	return nil
}

// Database creates a database for one test. After the test, Database drops the database unless the
// server is closed.
func (s *Server) Database(t testing.TB) DSN {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	d, err := s.CreateDatabase(ctx)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Logs())
	}
	t.Cleanup(func() {
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := s.DropDatabase(ctx, d); err != nil {
			t.Error(err)
		}
	})
	return d
}

// exec runs one task on a superuser's connection, without TLS or proxies.
func (s *Server) exec(ctx context.Context, do func(*sql.DB) error) error {
	if slices.Contains([]Kind{ZooKeeper, Etcd, Consul, Redis, Sentinel}, s.kind) {
		return errors.New("it has no databases: give each test its own namespace")
	}
	name := s.kind.driver()
	if !slices.Contains(sql.Drivers(), name) {
		return fmt.Errorf("database/sql has no driver %q: import github.com/jackc/pgx/v5/stdlib or "+
			"github.com/go-sql-driver/mysql in the test", name)
	}
	db, err := sql.Open(name, s.local.Reveal())
	if err != nil {
		return fmt.Errorf("cannot use %v", s.local) // the driver's error may quote the DSN
	}
	err = db.PingContext(ctx)
	if err == nil {
		err = do(db)
	}
	if closing := db.Close(); err == nil {
		err = closing
	}
	return err
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func redact(text string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "xxxxx")
		}
	}
	return text
}
