// Command cron runs a job on one of any number of machines, wired with fx, on the
// store that its configuration names.
//
//	go run ./cron -config cron/cron.yaml
//	TENURE__BACKEND=etcd go run ./cron -config cron/cron.yaml
//
// When the job ran last is an item under the leader's fence, written with the run
// itself: a new leader goes on from there, and a former one that was stopped in the
// middle cannot write it any more.
package main
