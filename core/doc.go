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
// A single-leader election is one shard; [RunSingleton] is the shortest form.
//
// # Who is authoritative for what
//
//   - The store's record of a shard says who was granted it last, and its token.
//     Every commit is checked against it in the same atomic step, so a former
//     owner's write is refused however late it comes and whatever it believes.
//   - The process's clock says how long it may believe in its leases: up to the
//     instant before it sent its last successful heartbeat + TTL - margin. This is
//     a stop condition for work that the store does not see. It is not what keeps
//     the data safe.
//   - The [View] informs: where to send a request, whom to hand over to. It may be
//     out of date; that costs time only.
//
// # A lease
//
//	wanted -> granted -> handler runs -> asked to stop -> handler returned -> given back
//	             |            |               |
//	             +------------+---------------+--> lost: may not be used
//
// One heartbeat per process keeps all its leases. When the process is silent for
// its TTL, as another member sees it, that member ends its session, and whoever is
// first in line takes its shards, with higher tokens: between two thirds of the
// TTL and the TTL after a crash, plus a few calls. A planned [Elector.HandOver]
// takes one.
//
// # Two contexts
//
// The handler's ctx ends when the handler should stop taking work: withdrawn,
// handed over, shut down, or lost; [context.Cause] tells. [Lease.Context] ends only
// when the lease may not be used any more. Closing writes use the latter. Neither
// is a child of the context of Run, whose end starts an orderly shutdown.
//
// The lease is given back only after its handler returned. One that does not
// return within [Options.DrainBudget] has its lease revoked here, is reported as
// stuck, and its shard is not released, since its work may still go on: it goes to
// another member when this process ends, or by [Options.AbandonAfter]. Other
// shards are not delayed by it.
//
// # Who should own it
//
// A member whose [Options.Eligible] returns an error claims nothing, and what it holds
// goes to a member that is eligible; while there is none the holder keeps it. With
// [Options.Failback] a holder gives way to a member with a higher priority that has lived
// for so long. Both ask the handler to stop, as a hand-over does, so that the shard has an
// owner all the time but for the hand-over. What the others tell is read from their member
// records: for planning, never for safety.
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
//     evicted. When it is back the same members carry on, each lease under a new
//     token.
//   - The process is stopped, or the machine suspended, for longer than the trust
//     window: its leases are lost, which it finds out on its first step or check.
//   - The store is wiped, restored or replaced: everything is revoked and nothing
//     granted until an operator decided (ErrStoreChanged).
//   - A handler panics: so does the process. Others take over as after a crash.
//
// # Operators' rules
//
// An Elector obeys the rules of package control that drain its node, or move or resign a
// lease: it asks the handler to stop, with ErrHandOver or ErrWithdrawn, gives the shard to
// another member and goes on contending for it. A drained member keeps what nobody else
// takes. The rules are read when a view shows that they changed, at no cost otherwise.
// Shards that were given a preference (Prefer) are their assigner's: package sharding obeys
// the rules about them in its plans.
//
// # What is not guaranteed
//
// Work that no fence checks may overlap with the next owner's, if clocks run at
// rates that differ by more than the margin covers, if the process is stopped
// between a check and its effect, or with AbandonAfter. A handler may be called
// any number of times for a shard, here and elsewhere: it continues from the log.
// Which member gets a shard is best effort. Nothing survives the loss of
// acknowledged writes by the store itself, but it is noticed where the store's
// identity or revision shows it.
package core
