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

// Kind identifies a server product.
type Kind string

// These are the kinds of servers. Galera consists of several MariaDB servers that certify each
// other's writes. PgBouncer is a proxy, in transaction mode, for the PostgreSQL server in
// Options.Upstream. Sentinels watch the Redis server in Options.Upstream, under the name
// [SentinelMaster]. S3 is versitygw, which has the API of Amazon S3. GCS is fake-gcs-server, which has
// the API of Google Cloud Storage.
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
	S3        Kind = "s3"
	GCS       Kind = "gcs"
)

// SentinelMaster is the name of the server that Sentinels watch.
const SentinelMaster = "primary"

// RequireVariable is the name of the environment variable that lists required servers. If such a
// server is missing, tests fail. The value is "all", or a comma-separated list of kinds.
const RequireVariable = "TENURE_REQUIRE_SERVERS"

// These are the errors of this package, for use with errors.Is.
var (
	// ErrUnavailable means that this machine does not have the server. The message gives the
	// reason, and explains how to get the server.
	ErrUnavailable = errors.New("server is not available")
	// ErrUnsupported means that this package cannot cause the fault, because it did not start the
	// server.
	ErrUnsupported = errors.New("not supported by this server")
)

// short reports whether this test binary runs with -short and the kind is not required.
func short(kind Kind) bool {
	return testing.Testing() && flag.Parsed() && testing.Short() && !Required(kind)
}

// Short skips a test of real processes if -short is set, unless the environment requires one of the
// kinds. If no kind is given, a requirement for any server is enough.
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

// Unavailable skips the test with the reason if err is ErrUnavailable and the environment does not
// require the kind. Any other error fails the test. Unavailable returns only if err is nil.
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

// variable returns the environment variable that specifies a running server, or "" if the kind has
// none.
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

// driver returns the name of the kind's driver in database/sql.
func (k Kind) driver() string {
	if k.mariadb() {
		return "mysql"
	}
	return "pgx"
}

// mariadb reports whether the kind's servers are MariaDB.
func (k Kind) mariadb() bool { return k == MariaDB || k == Galera }

func (k Kind) check() error {
	if !slices.Contains([]Kind{
		Postgres, MariaDB, Galera, PgBouncer, ZooKeeper, Etcd, Consul, Redis, Sentinel, S3, GCS,
	}, k) {
		return fmt.Errorf("tenure: there is no kind of server %q", string(k))
	}
	return nil
}

// clusters reports whether several servers of the kind can form one store.
func (k Kind) clusters() bool {
	return slices.Contains([]Kind{Galera, Etcd, Consul, ZooKeeper, Redis, Sentinel}, k)
}

func unavailable(kind Kind, format string, args ...any) error {
	return fmt.Errorf("tenure: %s: %w: %w", kind, ErrUnavailable, fmt.Errorf(format, args...))
}
