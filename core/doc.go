// Package core elects leaders and shares shards among processes, on the store a
// team already runs. An [Elector] takes part for one process; each shard that it
// holds is a [Lease] with a fencing token, and a [Handler] that serves it. This is
// the package that applications use, with one of the backends.
//
//	e, err := core.NewElector(backend, nil)
//	err = e.Contend(func(ctx context.Context, lease *core.Lease) error {
//		return serve(ctx, lease) // until ctx ends
//	}, "orders-0", "orders-1")
//	err = e.Run(ctx)
//
// A single-leader election is one shard; [RunSingleton] is the shortest form,
// and [RunOnce] does a job once for all members.
//
// # Who is authoritative for what
//
//   - The store's record of a shard says who was granted it last, and its token.
//     Every commit is checked against it in the same atomic step, so a former
//     owner's write is refused however late it comes and whatever it believes.
//   - The process's clock says how long it may believe in its leases: for the TTL
//     less [Options.Margin], from the moment just before it sent the newest heartbeat
//     that was answered. This is a stop condition for work that the store does not
//     see. It is not what keeps the data safe.
//   - The [View] informs: where to send a request, whom to hand over to. It may be
//     out of date; that costs time only.
//
// # A lease
//
//	wanted -> granted -> handler runs -> asked to stop -> handler returned -> given back
//	             |            |               |
//	             +------------+---------------+--> lost: may not be used
//
// One heartbeat per process keeps all its leases. It is sent every third of the TTL,
// which is 10 s by default. When another member has seen none for the TTL, it ends the
// session, and the member that comes first in the order takes the shards, with higher
// tokens. A crash comes up to a third of the TTL after the last heartbeat, so that its
// shards have an owner between two thirds of the TTL and the TTL later, plus a few
// calls. A planned [Elector.HandOver] takes one call.
//
// When a handler returns before it was asked to, with an error or without one, its shard is
// given back. Other members may claim it at once, and this one after a back-off, which
// [Options].BackoffMin and BackoffMax bound. A handler that has nothing left to do waits for
// its ctx. [RunSingleton] differs: it returns when its handler returns nil.
//
// # Two contexts
//
// The handler's ctx ends when the handler should stop taking work: withdrawn,
// handed over, shut down, or lost; [context.Cause] tells. [Lease.Context] ends only
// when the lease may not be used any more. Closing writes use the latter. Neither
// is a child of Run's context: when that ends, an orderly shutdown begins.
//
// The lease is given back only after its handler returned. If a handler does not
// return within [Options.DrainBudget], its lease is revoked here and the handler is
// reported as stuck. Its work may still go on, so the shard is not released: another
// member gets it when this process ends, or after [Options.AbandonAfter]. Other shards
// are not delayed.
//
// # Who should own it
//
// A member whose [Options.Eligible] returns an error claims nothing, and what it holds
// goes to a member that is eligible; while there is none the holder keeps it. With
// [Options.Failback] a holder gives its shards to a member with a higher priority once that
// one has been eligible for this duration. Both are hand-overs: the handler is asked to stop,
// and the shard is without an owner for one call. Members write their priority, and whether
// they are eligible, into their records: for planning, never for safety.
//
// # Writes
//
// [Lease.Commit] writes keys and log entries under the fence, all or nothing, and
// [Lease.Append] one entry. Any number of goroutines may call them: what arrives
// while a write is in flight forms the next. A lost reply is settled by sending the
// same write again, under the same number and nonce, so the caller learns that it
// was committed, or that it was refused, or, only when the store stays out of reach
// until the lease is over, ErrUnknown. [NotApplied] tells what may be done again.
//
// Writes elsewhere carry [Lease.Fence], to be compared where they are applied. A
// check of [Lease.Err] before a write is not enough: the process may be stopped
// between the two.
//
// # Failures
//
//   - The store is out of reach: leases lapse at their deadline, and nobody is
//     evicted, since all look silent alike. When it is back the same members carry on,
//     each lease under a new token.
//   - The process is stopped, or the machine suspended, for longer than the TTL less
//     the margin: its leases are lost. The process finds out before it does anything
//     else with them, and at each call of [Lease.Err].
//   - The store is wiped, restored or replaced: everything is revoked and nothing
//     granted until an operator decided (ErrStoreChanged). What a store cannot show of
//     this, its package says.
//   - A handler panics: so does the process. Others take over as after a crash.
//
// # Operators' rules
//
// An Elector obeys the rules of package control that drain its node, or move or resign a
// lease: it asks the handler to stop, with ErrHandOver or ErrWithdrawn, gives the shard to
// another member and goes on contending for it. A drained member keeps what nobody else
// takes. The rules are read when a view shows that they changed, at no cost otherwise.
// Rules about shards that an assigner named members for ([Elector.Prefer]) are not the
// Elector's to obey: package sharding obeys them when it plans.
//
// # What is not guaranteed
//
// Work that no fence checks may overlap with the next owner's, if clocks run at
// rates that differ by more than the margin covers, if the process is stopped
// between a check and its effect, or with AbandonAfter. A handler may be called
// any number of times for a shard, here and elsewhere: it continues from the log.
// Which member gets a shard is best effort. If the store itself loses writes that it
// had acknowledged, they are lost; members notice where the store's identity or revision
// shows it.
package core
