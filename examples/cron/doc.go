// Command cron runs a job on one of any number of machines, wired with fx, on the store that its
// configuration names.
//
//	go run ./cron -config cron/cron.yaml
//	TENURE__BACKEND=etcd go run ./cron -config cron/cron.yaml
//
// The servers in cron.yaml are invented. Put in yours, and the first time set
// TENURE__BACKENDS__ETCD__CREATE=true (for SQL servers ...__MIGRATE=true, too).
//
// The time when the job last began is an item under the leader's fence, written with the run
// itself. A new leader reads it first, and waits for the rest of the interval. So only an
// unfinished run is repeated. A former leader that was stopped in the middle can no longer write
// the item.
package main
