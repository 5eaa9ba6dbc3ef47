// Package core elects leaders and distributes shards among processes, using a store that you
// already run. Each process has an [Elector]. For each shard that the process owns, the Elector
// holds a [Lease] with a fencing token, and a [Handler] serves the shard. Applications use this
// package together with a backend package.
//
//	e, err := core.NewElector(backend, nil)
//	err = e.Contend(func(ctx context.Context, lease *core.Lease) error {
//		return serve(ctx, lease) // until ctx ends
//	}, "orders-0", "orders-1")
//	err = e.Run(ctx)
//
// To elect a single leader, let all members contend for one shard. [RunSingleton] is the simplest
// way to elect a single leader. [RunOnce] runs a job once on behalf of all members.
//
// # What is authoritative
//
//   - The store's record of a shard contains the session and the token of the latest grant. The
//     store checks each commit against this record and applies the commit in one atomic step. The
//     store therefore refuses a former owner's writes, including writes already in flight.
//   - The process's clock determines how long the process may trust its leases. A process trusts
//     its leases for the TTL minus [Options.Margin], measured from just before the process sent its
//     last answered heartbeat. The end of trust also stops work that the store does not see. The
//     safety of your data depends on the fence, not on the clock.
//   - The [View] shows where to send a request and which member can take over a shard. An outdated
//     view can only delay work.
//
// # A lease
//
//	wanted -> granted -> handler runs -> asked to stop -> handler returned -> given back
//	             |            |               |
//	             +------------+---------------+--> lost: may not be used
//
// One heartbeat renews all leases of a process. By default, the TTL is 10 s, and each process sends
// a heartbeat every TTL/3. If another member sees no heartbeat from a process for the TTL, it ends
// the process's session. Other members then take over the shards, with higher tokens. After a
// crash, each shard gets a new owner within one TTL plus the time for a few calls. A takeover takes
// at least two thirds of the TTL. A planned [Elector.HandOver] takes one call to the store.
//
// If a handler returns, with or without an error, before it is asked to stop, the Elector gives up
// the lease. Other members may claim the shard immediately. This member claims the shard again
// after a back-off ([Options].BackoffMin and BackoffMax). A handler that has nothing left to do
// should wait until its ctx ends. In contrast, [RunSingleton] returns when its handler returns nil.
//
// # Two contexts
//
// The handler's ctx ends when the handler should stop taking work. [context.Cause] returns the
// reason: the lease was withdrawn, handed over or lost, or Run is shutting down. For final writes,
// use [Lease.Context], which ends only when the lease may no longer be used. Neither context is a
// child of Run's context. When Run's context ends, an orderly shutdown begins.
//
// The Elector gives up the lease only after its handler has returned. If a handler does not return
// within [Options.DrainBudget], the Elector revokes its lease and reports the handler as stuck. The
// handler's work may continue, so the shard is not released. Another member gets the shard when
// this process ends, or after [Options.AbandonAfter]. A stuck handler does not delay other shards.
//
// # Who should own it
//
// A member whose [Options.Eligible] returns an error claims no shards. If another member is
// eligible, the ineligible member gives that member its shards. If no other member is eligible, the
// member keeps its shards. If [Options.Failback] is set, a holder gives its shards to a
// higher-priority member that has been eligible for that duration. To give up a shard in these
// cases, the Elector asks the handler to stop. The shard then has no owner during one call to the
// store. Members publish their priority and eligibility only for planning. Safety does not depend
// on these values.
//
// # Writes
//
// [Lease.Commit] writes keys and log entries atomically under the fence. [Lease.Append] writes one
// log entry. Any number of goroutines may call either method. Commits that arrive while a write is
// in flight are combined into the next write. If a reply is lost, the Elector sends the same write
// again, with the same number and nonce. The answer shows whether the store committed or refused
// the write. The caller gets ErrUnknown only if the store stays unreachable until the lease ends,
// or if the caller's ctx ends first. [NotApplied] reports whether a failed write may be repeated.
//
// A write to any other system must carry [Lease.Fence], and that system must check the fence before
// it applies the write. Checking [Lease.Err] before a write is not enough, because the process may
// be stopped between the check and the write.
//
// # Failures
//
//   - If the store is unreachable, each lease lapses when the process may no longer trust it. All
//     members then appear silent, so no member is evicted. When the store is reachable again, the
//     members keep their shards, and each shard gets a lease with a new token.
//   - If the process is stopped or the machine is suspended for longer than the TTL minus the
//     margin, the process loses its leases. The process notices the loss before it uses the leases
//     again. Every call to [Lease.Err] reports the loss.
//   - If the store is wiped, restored or replaced, all leases are revoked, and no lease is granted
//     until an operator decides what to do (ErrStoreChanged). Each backend's documentation lists
//     the changes that its store cannot detect.
//   - If a handler panics, the process ends. Other members take over as they do after a crash.
//
// # Operators' rules
//
// An Elector obeys the rules of package control that drain its node, and the rules that move or
// resign one of its leases. To obey a rule, the Elector asks the handler to stop (ErrHandOver or
// ErrWithdrawn) and gives the shard to another member. The Elector then contends for the shard
// again. A drained member keeps any shard that no other member takes. The Elector reads the rules
// only when a view shows that they have changed. The Elector ignores rules about shards that an
// assigner assigns, because package sharding obeys those rules in its plans.
//
// # What is not guaranteed
//
// Unfenced work may overlap with the next owner's work in three cases:
//
//   - the rates of two clocks differ by more than the margin covers,
//   - the process is stopped between a check and its effect,
//   - AbandonAfter is set.
//
// A shard's handler may be called any number of times, in any process, and each call must resume
// from the log. Tenure does not guarantee which member gets a shard, and cannot restore
// acknowledged writes that the store itself loses. Members notice such a loss only if the store's
// identity or revision reveals it.
package core
