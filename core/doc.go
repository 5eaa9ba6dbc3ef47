// Package core elects leaders and distributes shards among processes, with a store that you already
// run. Each process has an [Elector]. For each shard that the process owns, the Elector holds a
// [Lease] with a fencing token, and a [Handler] serves the shard. Applications use this package
// together with a backend.
//
//	e, err := core.NewElector(backend, nil)
//	err = e.Contend(func(ctx context.Context, lease *core.Lease) error {
//		return serve(ctx, lease) // until ctx ends
//	}, "orders-0", "orders-1")
//	err = e.Run(ctx)
//
// To elect a single leader, let the members contend for one shard. [RunSingleton] is the shortest
// way to do so. [RunOnce] does a job once for all members.
//
// # What is authoritative
//
//   - The store's record of a shard names the session that was last granted the shard, and the
//     token of that grant. The store checks every commit against this record in the same atomic
//     step. It refuses a former owner's write, however late the write arrives.
//   - The process's clock determines how long the process may trust its leases. The leases last for
//     the TTL less [Options.Margin], counted from just before the process sent the last heartbeat
//     that was answered. This deadline stops work that the store does not see. The safety of your
//     data depends on the fence, not on the clock.
//   - The [View] shows where to send a request, and which member can take over a shard. An outdated
//     view can only delay work.
//
// # A lease
//
//	wanted -> granted -> handler runs -> asked to stop -> handler returned -> given back
//	             |            |               |
//	             +------------+---------------+--> lost: may not be used
//
// One heartbeat renews all leases of a process. By default, the TTL is 10 s, and each process sends
// a heartbeat every third of the TTL. If another member sees no heartbeat for the TTL, it ends the
// session. Other members then take the shards with higher tokens. After a crash, the shards get new
// owners within one TTL plus the time of a few calls, but no sooner than after two thirds of the
// TTL. A planned [Elector.HandOver] takes one call to the store.
//
// If a handler returns before it was asked to stop, with or without an error, the Elector gives its
// shard back. Other members may claim the shard immediately. This member waits for a back-off
// before it claims the shard again ([Options].BackoffMin and BackoffMax). A handler that has
// nothing left to do should wait until its ctx ends. [RunSingleton] differs: it returns when its
// handler returns nil.
//
// # Two contexts
//
// The handler's ctx ends when the handler should stop taking work, because its lease was withdrawn,
// handed over or lost, or because Run is shutting down. [context.Cause] returns the reason.
// [Lease.Context] ends only when the lease may no longer be used, so use it for final writes.
// Neither context is a child of Run's context. When Run's context ends, an orderly shutdown begins.
//
// The Elector gives the lease back only after its handler has returned. If a handler does not
// return within [Options.DrainBudget], the Elector revokes its lease and reports the handler as
// stuck. The handler's work may continue, so the shard is not released. Another member gets the
// shard when this process ends, or after [Options.AbandonAfter]. Other shards are not delayed.
//
// # Who should own it
//
// A member whose [Options.Eligible] returns an error claims nothing. It gives its shards to an
// eligible member, or keeps them if there is no such member. If [Options.Failback] is set, a holder
// gives its shards to a member with a higher priority once that member has been eligible for this
// long. In both cases, the Elector asks the handler to stop, and the shard has no owner for the
// duration of one call. Members publish their priority and eligibility in their records. Safety
// does not depend on these values, which serve only for planning.
//
// # Writes
//
// [Lease.Commit] writes keys and log entries atomically under the fence. [Lease.Append] writes one
// log entry. Any number of goroutines may call either method. Commits that arrive while a write is
// in flight form the next write. If a reply is lost, the Elector sends the same write again, under
// the same number and nonce, to learn whether the write was committed or refused. The caller gets
// ErrUnknown only if the store stays out of reach until the lease is over, or if the caller's ctx
// ends first. [NotApplied] reports whether a failed write may be repeated.
//
// A write to any other system carries [Lease.Fence], which that system checks before it applies the
// write. Checking [Lease.Err] before a write is not enough, because the process may be stopped
// between the check and the write.
//
// # Failures
//
//   - The store is out of reach: leases lapse at their deadline. No member is evicted, because all
//     members appear silent. When the store is back, the same members continue, and each lease gets
//     a new token.
//   - The process is stopped, or the machine suspended, for longer than the TTL less the margin:
//     its leases are lost. The process notices the loss before it does anything else with the
//     leases, and at each call of [Lease.Err].
//   - The store is wiped, restored or replaced: all leases are revoked, and nothing is granted
//     until an operator decides (ErrStoreChanged). Each backend's package says which of these
//     changes its store cannot detect.
//   - A handler panics: the process ends. Other members take over as they do after a crash.
//
// # Operators' rules
//
// An Elector obeys the rules of package control that drain its node, or that move or resign a
// lease. It asks the handler to stop, with ErrHandOver or ErrWithdrawn, gives the shard to another
// member, and continues to contend for the shard. A drained member keeps any shard that no other
// member takes. The Elector reads the rules only when a view shows that they changed. It ignores
// rules about shards that an assigner assigns, because package sharding obeys those rules when it
// plans.
//
// # What is not guaranteed
//
// Work that no fence checks may overlap with the next owner's work in three cases:
//
//   - clocks run at rates that differ by more than the margin covers,
//   - the process is stopped between a check and its effect,
//   - AbandonAfter is set.
//
// A shard's handler may be called any number of times, in this process and in others. Each call
// continues from the log. Tenure does not guarantee which member gets a shard. It cannot restore
// acknowledged writes that the store itself loses. Members notice such a loss only if the store's
// identity or revision reveals it.
package core
