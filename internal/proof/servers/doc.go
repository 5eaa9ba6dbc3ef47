// Package servers starts real servers for tests, benchmarks and the demonstration:
// the test's own processes on loopback, with their own data directories and
// passwords, on ports that were free.
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
// A [Pool] shares a server between the tests of one binary, each with its own
// database; [Pool.RunExamples] has it for examples too. A test that kills, stops or reconfigures a server starts one with
// [New]; a program that is no test starts one with [Start] and closes it.
//
// # Where servers come from
//
// TENURE_POSTGRES_DSN (postgres://...), TENURE_MYSQL_DSN (user:password@tcp(host:port)/)
// and TENURE_ZOOKEEPER_SERVERS (user:password@host:port,host:port) name servers that
// run already; faults are then not supported, and say so.
// Otherwise the binaries of the machine are started, on Linux; "make servers"
// installs them from Debian packages, or builds them from their Go modules (etcd,
// Consul). PostgreSQL is 15 or later.
//
// [StartCluster] and [NewCluster] start several members of a kind that has clusters.
//
// A server that cannot be had is [ErrUnavailable]. [New] and [Pool.Get] then skip
// the test with the reason, or fail it where TENURE_REQUIRE_SERVERS lists the kind,
// separated by commas, or is "all". With -short only listed
// servers are started.
//
// # Clean-up
//
// Nothing is left behind, also after a panic, an interrupt or SIGKILL: the kernel
// kills a server when the process that started it dies, and a janitor, a small
// shell script that waits for that death, ends processes that the kernel does not
// reach (PostgreSQL's stopped children) and removes the directory. If the janitor
// was killed too, the next start cleans up.
//
// # What it does not do
//
// It imports no database driver: creating databases uses database/sql and the
// driver that the test imports, github.com/jackc/pgx/v5/stdlib or
// github.com/go-sql-driver/mysql. It cuts no connections: put a proxy before the
// server, and point [DSN.At] to it.
package servers
