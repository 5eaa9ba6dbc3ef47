// Command cron runs a job on one of any number of machines, wired with fx, on the
// store that its configuration names.
//
//	go run ./cron -config cron/cron.yaml
//	TENURE__BACKEND=etcd go run ./cron -config cron/cron.yaml
//
// The servers in cron.yaml are made up: put in yours, and set
// TENURE__BACKENDS__ETCD__CREATE=true (for SQL servers ...__MIGRATE=true, too) the first
// time.
//
// When the job began last is an item under the leader's fence, written with the run
// itself. A new leader reads it first, and waits for the rest of the interval: only a
// run that was not finished is made again. A former leader that was stopped in the middle
// cannot write it any more.
package main
