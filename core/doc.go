// Package core elects leaders and distributes shards among processes. It uses a store that a team
// already runs. An [Elector] takes part for one process. Each shard that it holds is a [Lease] with
// a fencing token and a [Handler] that serves it. Applications use this package, with one of the
// backends.
//
//	e, err := core.NewElector(backend, nil)
//	err = e.Contend(func(ctx context.Context, lease *core.Lease) error {
//		return serve(ctx, lease) // until ctx ends
//	}, "orders-0", "orders-1")
//	err = e.Run(ctx)
//
// A single-leader election is one shard. Its shortest form is [RunSingleton]. The function
// [RunOnce] does a job once for all members.
//
// # What is authoritative
//
//   - The store's record of a shard names the session of its latest grant, and its token. The
//     store checks every commit against this record in the same atomic step. It refuses a former
//     owner's write however late the write arrives.
//   - The process's clock determines how long the process may trust its leases. They last for the
//     TTL less [Options.Margin], counted from just before it sent its newest answered heartbeat.
//     This deadline stops work that the store does not see. The data's safety rests on the fence,
//     not on the clock.
//   - The [View] tells where to send a request, and to whom to hand over. A view that is out of
//     date costs only time.
//
// # A lease
//
//	wanted -> granted -> handler runs -> asked to stop -> handler returned -> given back
//	             |            |               |
//	             +------------+---------------+--> lost: may not be used
//
// One heartbeat per process keeps all its leases. Each process sends one every third of the TTL. By
// default, the TTL is 10 s. If another member sees no heartbeat for the TTL, it ends the session.
// The first member in the order then takes the shards, with higher tokens. After a crash, the
// shards have a new owner within one TTL plus a few calls, but not sooner than two thirds of the
// TTL. A planned [Elector.HandOver] takes one call.
//
// If a handler returns before it was asked to, with or without an error, the Elector gives its
// shard back. Other members may claim it immediately. This member claims it after a back-off, which
// [Options].BackoffMin and BackoffMax limit. A handler with nothing left to do should wait for
// its ctx. [RunSingleton] differs: it returns when its handler returns nil.
//
// # Two contexts
//
// The handler's ctx ends when the handler should stop taking work. Its lease was withdrawn, handed
// over or lost, or Run is shutting down; [context.Cause] returns the reason. [Lease.Context] ends
// only when the lease may no longer be used; closing writes use it. Neither is a child of Run's
// context, whose end begins an orderly shutdown.
//
// The Elector gives the lease back only after its handler has returned. If a handler does not
// return within [Options.DrainBudget], the Elector revokes its lease and reports the handler as
// stuck. The handler's work may continue, so the shard is not released. Another member gets it when
// this process ends, or after [Options.AbandonAfter]. Other shards are not delayed.
//
// # Who should own it
//
// A member whose [Options.Eligible] returns an error claims nothing. It gives its shards to an
// eligible member, or keeps them if there is no such member. With [Options.Failback], a holder
// gives its shards to a member with a higher priority once that member has been eligible for this
// duration. In both cases, the Elector asks the handler to stop, and the shard has no owner for the
// duration of one call. Members write their priority and eligibility into their records. These
// serve planning only; safety does not depend on them.
//
// # Writes
//
// [Lease.Commit] writes keys and log entries atomically under the fence. [Lease.Append] writes one
// log entry. Any number of goroutines may call them. Commits that arrive while a write is in flight
// form the next write. If a reply is lost, the Elector sends the same write again, under the same
// number and nonce. The caller thus learns whether the write was committed or refused. The error is
// ErrUnknown only if the store stays out of reach until the lease is over. [NotApplied] reports
// whether a failed write may be repeated.
//
// Writes elsewhere carry [Lease.Fence], which the destination compares before it applies the write.
// A check of [Lease.Err] before a write is not enough, because the process may be stopped between
// the two.
//
// # Failures
//
//   - The store is out of reach: leases lapse at their deadline. No member is evicted, since all
//     members appear silent. When the store is back, the same members continue, each lease under a
//     new token.
//   - The process is stopped, or the machine suspended, for longer than the TTL less the margin:
//     its leases are lost. The process notices this before it does anything else with them, and at
//     each call of [Lease.Err].
//   - The store is wiped, restored or replaced: all leases are revoked, and nothing is granted
//     until an operator decides (ErrStoreChanged). Each backend's package says which of these
//     changes its store cannot detect.
//   - A handler panics: the process ends. Other members take over as they do after a crash.
//
// # Operators' rules
//
// An Elector obeys the rules of package control that drain its node, or move or resign a lease. It
// asks the handler to stop, with ErrHandOver or ErrWithdrawn, gives the shard to another member,
// and continues to contend for it. A drained member keeps any shard that no other member takes. The
// Elector reads the rules when a view shows that they changed; otherwise, they cost nothing. It
// ignores rules about shards that an assigner assigns, because package sharding obeys them when it
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
// continues from the log. Which member gets a shard is best effort. Tenure cannot restore
// acknowledged writes that the store itself loses. Members notice the loss if the store's identity
// or revision shows it.
package core
