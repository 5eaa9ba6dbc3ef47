// Command cron runs a job on only one of several machines at a time. The program is wired with fx,
// and works with any store.
//
//	go run ./cron -config cron/cron.yaml
//	TENURE__BACKEND=etcd go run ./cron -config cron/cron.yaml
//
// Replace the example addresses in cron.yaml with those of your servers. For the first run, set
// TENURE__BACKENDS__ETCD__CREATE=true, and for SQL servers also ...__MIGRATE=true.
//
// An item contains the time when the job last began. The leader commits this item together with the
// run's result, under the fence. A new leader first reads the item and waits for the rest of the
// interval, so only an unfinished run is repeated. A former leader that was stopped during a run
// can no longer write the item.
package main
