// Package live points the conformance suite at a store that runs already, without
// a line of Go. It has tests only:
//
//	go test -v github.com/tenure-go/tenure/conformance/live -args -backend sqlite -dsn /var/lib/app/tenure.db
//	TENURE_LIVE_DSN=postgres://user:password@host/db go test -v .../conformance/live -args -backend postgres
//	go test -v .../conformance/live -run TestLive/Commit -args -backend mysql -options '{"migrate":true}'
//
//	-backend  memory, sqlite, postgres, mysql, etcd, consul, zookeeper or redis. Without it
//	          TestLive is skipped.
//	-dsn      the path of the file for sqlite, the endpoints of etcd, the address of
//	          Consul's agent, the servers of ZooKeeper, the address of Redis (several separated by
//	          commas), else the data source name. Default:
//	          the environment variable TENURE_LIVE_DSN, which other users of the
//	          machine do not see, as they see arguments.
//	-options  more of the backend's settings, as JSON under the names that its
//	          configuration has: {"migrate":true,"schema":"leases"}. Durations are
//	          numbers of nanoseconds. Tables are created only if migrate says so;
//	          sqlite's always are.
//	-report   a file that the summary is written to as well. The go command shows
//	          it only with -v, or when a test fails.
//	-serial   one case after the other, for a store that others use.
//	-long     about 20 times as many interleavings.
//
// Each case has its own namespace below one with a random name, and nothing outside
// of them is touched. Afterwards a connection of the suite deletes their records,
// as far as its user may. The summary lists the removed records, and the remaining
// ones.
//
// No output has the password: where it stands in the data source name, or comes
// from an option (password, token, or a file of one), it is cut out of every
// message as well.
//
// # What it does not do
//
// It causes no faults. The cases that need one (lost replies, a cut, a wiped or
// restarted store) are skipped, and the summary lists them with the reason: the
// backend's own tests run them. It loads the store for a while: do not run it on a
// production database at its busiest hour.
package live
