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
// A [Pool] shares one server among the tests of a binary, and each test has its own database. With
// [Pool.RunExamples], examples use the same server. A test that kills, stops or reconfigures a
// server starts its own server with [New]. A program that is not a test starts a server with
// [Start], and must close the server.
//
// # Where servers come from
//
// TENURE_POSTGRES_DSN (postgres://...), TENURE_MYSQL_DSN (user:password@tcp(host:port)/) and
// TENURE_ZOOKEEPER_SERVERS (user:password@host:port,host:port) specify running servers. Functions
// that cause faults in these servers return ErrUnsupported. Without these variables, the package
// starts installed server binaries, but only on Linux. "make servers" installs them from Debian
// packages, or builds them from their Go modules (etcd, Consul, versitygw, fake-gcs-server). PostgreSQL
// must be 15 or later.
//
// [StartCluster] and [NewCluster] start a cluster of several members, if the kind of server
// supports clusters.
//
// If the machine lacks the server, the error is [ErrUnavailable], and [New] and [Pool.Get] skip the
// test with the reason. New and Pool.Get fail the test instead if the comma-separated list
// TENURE_REQUIRE_SERVERS contains the kind of server, or is "all". With -short, the package starts
// only the servers in this list.
//
// # Clean-up
//
// The package leaves no processes or directories behind, even after a panic, an interrupt or
// SIGKILL. When the process that started a server dies, the kernel kills the server. A small shell
// script, the janitor, then removes the directory. The janitor also ends processes that the kernel
// does not kill, such as PostgreSQL's stopped children. If the janitor was killed too, the next
// start cleans up.
//
// # What it does not do
//
// The package imports no database driver. To create databases, it uses database/sql and the driver
// that the test imports: github.com/jackc/pgx/v5/stdlib or github.com/go-sql-driver/mysql. To cut
// connections, put a proxy in front of the server, and use [DSN.At] with the proxy's address.
package servers
