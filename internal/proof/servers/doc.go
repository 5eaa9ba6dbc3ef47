// Package servers starts real servers for tests, benchmarks and the demonstration. Each server is a
// child process on a free loopback port, with its own data directory and password.
//
//	var pool servers.Pool
//
//	func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }
//
//	func TestStore(t *testing.T) {
//		dsn := pool.Get(t, servers.Postgres, nil).Database(t)
//		db, err := sql.Open("pgx", dsn.Reveal())
//		...
//	}
//
//	func TestCrash(t *testing.T) {
//		s := servers.New(t, servers.Postgres, &servers.Options{TLS: servers.TLSServer})
//		...
//		s.Kill(ctx)
//		s.Restart(ctx)
//	}
//
// A [Pool] shares a server between the tests of one binary, each with its own database. With
// [Pool.RunExamples], examples share the server, too. A test that kills, stops or reconfigures a
// server starts its own with [New]. A program that is not a test starts a server with [Start] and
// closes it.
//
// # Where servers come from
//
// TENURE_POSTGRES_DSN (postgres://...), TENURE_MYSQL_DSN (user:password@tcp(host:port)/) and
// TENURE_ZOOKEEPER_SERVERS (user:password@host:port,host:port) name running servers. Functions that
// cause faults in these servers return ErrUnsupported. Without the variables, the package starts
// the binaries that the machine has, on Linux only. "make servers" installs them from Debian
// packages, or builds them from their Go modules (etcd, Consul). PostgreSQL must be 15 or later.
//
// [StartCluster] and [NewCluster] start a cluster of several members, if the kind of server has
// clusters.
//
// If the machine lacks the server, the error is [ErrUnavailable], and [New] and [Pool.Get] skip the
// test with the reason. They fail the test if TENURE_REQUIRE_SERVERS, a list separated by commas,
// contains the kind of server or is "all". With -short, only listed servers are started.
//
// # Clean-up
//
// Nothing is left behind, even after a panic, an interrupt or SIGKILL. The kernel kills a server
// when the process that started it dies. A janitor, which is a small shell script, waits for that
// process to die. It then ends processes that the kernel does not reach (PostgreSQL's stopped
// children) and removes the directory. If the janitor was killed too, the next start cleans up.
//
// # What it does not do
//
// The package imports no database driver. To create databases, it uses database/sql and the driver
// that the test imports: github.com/jackc/pgx/v5/stdlib or github.com/go-sql-driver/mysql. It cuts
// no connections. To cut them, put a proxy in front of the server, and use [DSN.At] with the
// proxy's address.
package servers
