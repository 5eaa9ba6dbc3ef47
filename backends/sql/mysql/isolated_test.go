package mysql

import (
	"context"
	"crypto/rand"
	stdsql "database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestConformanceIsolated cuts a primary off from its semi-synchronous replica, which is promoted.
// From then on, the primary extends no session, acknowledges no write, and shows nothing that the
// replica lacks. This is true even if the primary shows commits before the replica has them, which
// is the default.
func TestConformanceIsolated(t *testing.T) {
	t.Parallel()
	servers.Short(t, servers.MariaDB)
	for _, wait := range []string{"AFTER_COMMIT", "AFTER_SYNC"} {
		t.Run(wait, func(t *testing.T) {
			t.Parallel()
			conformance.TestCases(t, conformance.Harness{Name: backendName, New: func(conformance.T) *conformance.Store {
				return semiSynchronous(t, wait)
			}}, "Chaos/IsolatedMaster", "Chaos/IsolatedReads")
		})
	}
}

// semiSynchronous returns a primary and its replica. Each commit waits for the replica, at the
// point that wait names. Isolate separates the servers.
func semiSynchronous(t *testing.T, wait string) *conformance.Store {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	member := func(number int, more ...string) *servers.Server {
		return servers.New(t, servers.MariaDB, &servers.Options{NoSync: true, Config: append([]string{
			"log-bin", "sync-binlog = 1", "binlog-format = ROW", fmt.Sprint("server-id = ", number),
		}, more...)})
	}
	primary := member(1, "rpl-semi-sync-master-enabled = ON", "rpl-semi-sync-master-timeout = 3600000",
		"rpl-semi-sync-master-wait-point = "+wait)
	replica := member(2, "rpl-semi-sync-slave-enabled = ON", "relay-log = relay")
	way, err := faultproxy.New(primary.Addr(), nil)
	must(err)
	t.Cleanup(func() { way.Close() })

	first, second := setup.DB(t, primary.Admin()), setup.DB(t, replica.Admin())
	host, port, _ := strings.Cut(way.Addr(), ":")
	sqlfault.Exec(t, second,
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = '%s', MASTER_PASSWORD = '%s', "+
			"MASTER_USE_GTID = slave_pos", host, port, primary.Admin().User(), primary.Admin().Password()),
		"START SLAVE")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for waits := ""; waits != "ON"; {
		must(second.QueryRowContext(ctx, "SHOW STATUS LIKE 'Rpl_semi_sync_slave_status'").Scan(new(string), &waits))
	}
	// Each server has its own users. This user is replicated with the database.
	password := rand.Text()
	sqlfault.Exec(t, first, "CREATE DATABASE tenure_test_isolated", "CREATE USER app@'%' IDENTIFIED BY '"+password+"'",
		"GRANT ALL ON tenure_test_isolated.* TO app@'%'")
	dsn := primary.User().As("app", password).Database("tenure_test_isolated")
	o := &Options{Create: true, MaxConns: 2}
	must(Migrate(t.Context(), dsn.Reveal(), o))

	var at atomic.Pointer[string]
	lead := func(addr string) { at.Store(&addr) }
	lead(primary.Addr())
	return &conformance.Store{
		Open: func(ctx context.Context) (driver.Backend, error) {
			b, err := Open(ctx, dsn.At(*at.Load()).Reveal(), "isolated", o)
			if err != nil {
				return nil, err
			}
			return b, nil
		},
		Isolate: func(context.Context) (func(context.Context) error, error) {
			return func(ctx context.Context) error {
				if err := takeOver(ctx, second); err != nil {
					return err
				}
				lead(replica.Addr())
				return nil
			}, way.Set(faultproxy.BlackHole())
		},
	}
}

// takeOver promotes a replica after it has applied everything that it received.
func takeOver(ctx context.Context, replica *stdsql.DB) error {
	if _, err := replica.ExecContext(ctx, "STOP SLAVE IO_THREAD"); err != nil {
		return err
	}
	for state := ""; !strings.HasPrefix(state, "Slave has read all relay log"); {
		err := replica.QueryRowContext(ctx, "SELECT STATE FROM information_schema.PROCESSLIST WHERE COMMAND = 'Slave_SQL'").Scan(&state)
		if err != nil {
			return err
		}
	}
	_, err := replica.ExecContext(ctx, "STOP SLAVE")
	return err
}
