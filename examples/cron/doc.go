// Command cron runs a job on one of any number of machines, wired with fx, on the store that its
// configuration names.
//
//	go run ./cron -config cron/cron.yaml
//	TENURE__BACKEND=etcd go run ./cron -config cron/cron.yaml
//
// The server addresses in cron.yaml are examples. Replace them with yours, and for the first run
// set TENURE__BACKENDS__ETCD__CREATE=true (for SQL servers ...__MIGRATE=true, too).
//
// The time when the job last began is an item, which the leader writes together with the run, under
// its fence. A new leader first reads this time, and waits for the rest of the interval, so only an
// unfinished run is repeated. A former leader that was stopped in the middle of a run can no longer
// write the item.
package main
