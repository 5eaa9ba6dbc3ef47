// Package servers starts real servers for tests, benchmarks and the demonstration. They are
// processes of the test on free ports of loopback, with their own data directories and passwords.
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
// A [Pool] shares a server between the tests of one binary, each with its own database.
// [Pool.RunExamples] shares it with examples too. A test that kills, stops or reconfigures a server
// starts one with [New]. A program that is no test starts one with [Start] and closes it.
//
// # Where servers come from
//
// TENURE_POSTGRES_DSN (postgres://...), TENURE_MYSQL_DSN (user:password@tcp(host:port)/) and
// TENURE_ZOOKEEPER_SERVERS (user:password@host:port,host:port) name running servers. Their faults
// return ErrUnsupported. Without these variables the binaries of the machine are started, on Linux.
// "make servers" installs them from Debian packages, or builds them from their Go modules (etcd,
// Consul). PostgreSQL must be 15 or later.
//
// [StartCluster] and [NewCluster] start several members of a kind that has clusters.
//
// If the machine has no such server, the error is [ErrUnavailable]. [New] and [Pool.Get] then skip
// the test with the reason. They fail it if TENURE_REQUIRE_SERVERS lists the kind, separated by
// commas, or is "all". With -short only listed servers are started.
//
// # Clean-up
//
// Nothing is left behind, even after a panic, an interrupt or SIGKILL. The kernel kills a server
// when the process that started it dies. A janitor, a small shell script, waits for that death. It
// ends processes that the kernel does not reach (PostgreSQL's stopped children) and removes the
// directory. If the janitor was killed too, the next start cleans up.
//
// # What it does not do
//
// The package imports no database driver. It creates databases with database/sql and the driver
// that the test imports, github.com/jackc/pgx/v5/stdlib or github.com/go-sql-driver/mysql. It cuts
// no connections. To cut them, put a proxy before the server, and use [DSN.At] with its address.
package servers
