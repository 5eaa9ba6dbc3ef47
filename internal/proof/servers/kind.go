package servers

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// Kind is a kind of server.
type Kind string

// The kinds of servers. Galera is MariaDB, of which several certify each other's writes. PgBouncer is a proxy that stands before the PostgreSQL
// in Options.Upstream, in transaction mode. Sentinels watch the Redis in
// Options.Upstream under the name [SentinelMaster].
const (
	Postgres  Kind = "postgres"
	MariaDB   Kind = "mariadb"
	Galera    Kind = "galera"
	PgBouncer Kind = "pgbouncer"
	ZooKeeper Kind = "zookeeper"
	Etcd      Kind = "etcd"
	Consul    Kind = "consul"
	Redis     Kind = "redis"
	Sentinel  Kind = "redis-sentinel"
)

// SentinelMaster is the name under which Sentinels know the server that they watch.
const SentinelMaster = "primary"

// RequireVariable is the environment variable that lists, separated by commas,
// the kinds of servers without which tests fail, or is "all".
const RequireVariable = "TENURE_REQUIRE_SERVERS"

// Errors of this package, to be matched with errors.Is.
var (
	// ErrUnavailable is a server that this machine does not have: the message says
	// why, and how to get it.
	ErrUnavailable = errors.New("server is not available")
	// ErrUnsupported is a fault that this server cannot be subjected to, because
	// it was not started here.
	ErrUnsupported = errors.New("not supported by this server")
)

// short reports whether this is a test binary that runs with -short, and kind is not required.
func short(kind Kind) bool {
	return testing.Testing() && flag.Parsed() && testing.Short() && !Required(kind)
}

// Short skips a test that runs real processes, if it runs with -short and the environment requires
// none of the kinds, or, without kinds, no server.
func Short(t testing.TB, kinds ...Kind) {
	t.Helper()
	if !testing.Short() || slices.ContainsFunc(kinds, Required) || len(kinds) == 0 && os.Getenv(RequireVariable) != "" {
		return
	}
	t.Skip("-short: .ci/run runs it")
}

// Required reports whether the environment requires this kind of server.
func Required(kind Kind) bool {
	for name := range strings.SplitSeq(os.Getenv(RequireVariable), ",") {
		if name = strings.TrimSpace(name); name == "all" || name == string(kind) {
			return true
		}
	}
	return false
}

// Unavailable skips the test with the reason if err is ErrUnavailable and the
// environment does not require the kind; any other error fails the test. It
// returns only for nil.
func Unavailable(t testing.TB, kind Kind, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrUnavailable) && !Required(kind):
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

// variable is the name of the environment variable that names a running server,
// empty for a kind without one.
func (k Kind) variable() string {
	switch k {
	case Postgres:
		return "TENURE_POSTGRES_DSN"
	case MariaDB:
		return "TENURE_MYSQL_DSN"
	case ZooKeeper:
		return "TENURE_ZOOKEEPER_SERVERS"
	default:
		return ""
	}
}

// driver is the name under which the kind's driver registers with database/sql.
func (k Kind) driver() string {
	if k.mariadb() {
		return "mysql"
	}
	return "pgx"
}

// mariadb reports whether servers of the kind are MariaDB's.
func (k Kind) mariadb() bool { return k == MariaDB || k == Galera }

func (k Kind) check() error {
	if !slices.Contains([]Kind{Postgres, MariaDB, Galera, PgBouncer, ZooKeeper, Etcd, Consul, Redis, Sentinel}, k) {
		return fmt.Errorf("tenure: there is no kind of server %q", string(k))
	}
	return nil
}

// clusters reports whether servers of the kind can form a store together.
func (k Kind) clusters() bool {
	return slices.Contains([]Kind{Galera, Etcd, Consul, ZooKeeper, Redis, Sentinel}, k)
}

func unavailable(kind Kind, format string, args ...any) error {
	return fmt.Errorf("tenure: %s: %w: %w", kind, ErrUnavailable, fmt.Errorf(format, args...))
}
