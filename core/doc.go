// Package core elects leaders and shares shards among processes, on a store that a team already
// runs. An [Elector] takes part for one process. Each shard that it holds is a [Lease] with a
// fencing token and a [Handler] that serves it. Applications use this package, with one of the
// backends.
//
//	e, err := core.NewElector(backend, nil)
//	err = e.Contend(func(ctx context.Context, lease *core.Lease) error {
//		return serve(ctx, lease) // until ctx ends
//	}, "orders-0", "orders-1")
//	err = e.Run(ctx)
//
// A single-leader election is one shard. [RunSingleton] is its shortest form. [RunOnce] does a
// job once for all members.
//
// # What is authoritative
//
//   - The store's record of a shard names the session of its latest grant, and its token. The
//     store checks every commit against this record in the same atomic step. It refuses a former
//     owner's write however late the write arrives.
//   - The process's clock says how long the process may trust its leases: for the TTL less
//     [Options.Margin], from just before it sent its newest answered heartbeat. This deadline
//     stops work that the store does not see. The fence, not the clock, keeps the data safe.
//   - The [View] informs: where to send a request, to whom to hand over. It may be out of date,
//     which costs time only.
//
// # A lease
//
//	wanted -> granted -> handler runs -> asked to stop -> handler returned -> given back
//	             |            |               |
//	             +------------+---------------+--> lost: may not be used
//
// One heartbeat per process keeps all its leases. Each process sends one every third of the TTL,
// which is 10 s by default. If another member has seen none for the TTL, it ends the session. The
// first member in the order then takes the shards, with higher tokens. After a crash the shards
// have an owner within one TTL, plus a few calls, and no sooner than two thirds of it. A planned
// [Elector.HandOver] takes one call.
//
// If a handler returns before it was asked to, with or without an error, the Elector gives its
// shard back. Other members may claim it immediately. This member claims it after a back-off, which
// [Options].BackoffMin and BackoffMax limit. A handler with nothing left to do should wait for
// its ctx. [RunSingleton] differs: it returns when its handler returns nil.
//
// # Two contexts
//
// The handler's ctx ends when the handler should stop taking work, because its lease was
// withdrawn, handed over or lost, or Run is shutting down. [context.Cause] returns the reason.
// [Lease.Context] ends only when the lease may no longer be used; closing writes use it. Neither
// is a child of Run's context, whose end begins an orderly shutdown.
//
// The Elector gives the lease back only after its handler returned. If a handler does not return
// within [Options.DrainBudget], the Elector revokes its lease and reports the handler as stuck.
// The handler's work may continue, so the shard is not released. Another member gets it when this
// process ends, or after [Options.AbandonAfter]. Other shards are not delayed.
//
// # Who should own it
//
// A member whose [Options.Eligible] returns an error claims nothing. Its shards go to an eligible
// member. Without one it keeps them. With [Options.Failback] a holder gives its shards to a
// member with a higher priority, once that member has been eligible for this duration. Both are
// hand-overs: the handler is asked to stop, and the shard has no owner for the time of one call.
// Members write their priority and eligibility into their records, for planning, never for
// safety.
//
// # Writes
//
// [Lease.Commit] writes keys and log entries under the fence, all or nothing, and [Lease.Append]
// one entry. Any number of goroutines may call them. Commits that arrive while a write is in
// flight form the next write. If a reply is lost, the Elector sends the same write again, under
// the same number and nonce. So the caller learns whether the write was committed or refused. The
// error is ErrUnknown only if the store stays out of reach until the lease is over. [NotApplied]
// reports whether a failed write may be repeated.
//
// Writes elsewhere carry [Lease.Fence], which is compared where they are applied. A check of
// [Lease.Err] before a write is not enough, because the process may be stopped between the two.
//
// # Failures
//
//   - The store is out of reach: leases lapse at their deadline. Nobody is evicted, since all
//     members look silent alike. When the store is back, the same members continue, each lease
//     under a new token.
//   - The process is stopped, or the machine suspended, for longer than the TTL less the margin:
//     its leases are lost. The process notices before it does anything else with them, and at
//     each call of [Lease.Err].
//   - The store is wiped, restored or replaced: all leases are revoked, and nothing is granted
//     until an operator decides (ErrStoreChanged). Each backend's package says what its store
//     cannot show of this.
//   - A handler panics: the process ends. Others take over as after a crash.
//
// # Operators' rules
//
// An Elector obeys the rules of package control that drain its node, or that move or resign a
// lease. It asks the handler to stop, with ErrHandOver or ErrWithdrawn, gives the shard to
// another member, and continues to contend for it. A drained member keeps the shards that no
// other member takes. The Elector reads the rules when a view shows that they changed; otherwise
// they cost nothing. It ignores rules about shards that an assigner assigns, because package
// sharding obeys them when it plans.
//
// # What is not guaranteed
//
// Work that no fence checks may overlap with the next owner's work in three cases:
//
//   - clocks run at rates that differ by more than the margin covers,
//   - the process is stopped between a check and its effect,
//   - AbandonAfter is set.
//
// A handler may be called any number of times for a shard, here and elsewhere; it continues from
// the log. Which member gets a shard is best effort. If the store itself loses acknowledged
// writes, they are lost. Members notice the loss if the store's identity or revision shows it.
package core
