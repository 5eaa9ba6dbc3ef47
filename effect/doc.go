// Package effect makes each effect outside the store once. Such an effect is a payment, an e-mail
// or a call to a tool. No transaction of the store covers such an effect, and no fence reaches it.
// A [Ledger] writes the intent before the effect, and the result after it. After a crash or a
// takeover, the next leader therefore knows which effects the former leader had begun.
//
//	func serve(ctx context.Context, lease *core.Lease) error {
//		ledger, err := effect.Open(ctx, lease, nil)
//		if err != nil {
//			return err
//		}
//		defer ledger.Close()
//		...
//		receipt, err := ledger.Do(ctx, "pay/"+order, func(ctx context.Context, id string) ([]byte, error) {
//			return bank.Charge(ctx, id, amount) // id is the idempotency key
//		})
//
// The handler opens the ledger when it begins, and closes it before it returns. If the effect was
// already done, Do returns the stored result without calling fn, even under a later lease. An
// idempotent consumer uses [Ledger.Lookup], which costs one read.
//
// # What an effect goes through
//
//	            intent written      fn returned nil
//	(unknown) ---------------> begun ---------------> done
//	                             |  \  NotDone: fn again; at the end, or Refused
//	                             |   ----------------> failed
//	        no answer, or the leader died
//	                             v
//	                          in doubt --- Resolve, or a person ---> done, failed or repeat
//
// Each arrow is one fenced write. Concurrent effects share writes: with 64 of them, each costs less
// than a tenth of a call to the store. If the store refuses the outcome of an effect and the lease
// stays valid, the ledger tries the write again every minute.
//
// An attempt that ends without an answer (a time-out, a lost connection) may have happened. The
// ledger repeats it only if the application says that this is harmless:
//
//   - [Options.Repeatable] states that the other side makes an effect once for each idempotency
//     key. Each effect then happens exactly once.
//   - [Options.Resolve] asks the other side about the key, and decides that the effect is done,
//     should be repeated, or failed. An effect that was compensated counts as failed.
//   - Otherwise, the effect stays in doubt until a person decides. [Ledger.InDoubt] and [ReadOpen]
//     list such effects, and [Options.Logger] logs each. [Options.Stats] counts them, for metrics
//     and the board.
//
// # What is not guaranteed
//
// A process can be stopped for any time between writing the intent and sending fn's request. When
// it continues, it sends the request, although another leader has taken over and may have decided
// the effect's outcome. No library can prevent this. A late request is harmless if the other side
// honours idempotency keys. Otherwise, fn can pass the lease's token, if the other side can compare
// it (package fence). Alternatively, Resolve returns Repeat only for an effect that can no longer
// happen. A key that the other side does not know yet proves nothing. If Resolve leaves all such
// effects in doubt, every effect that is made twice is listed.
//
// If Do is called for an effect after [Options.Keep] has passed, it makes the effect again. The
// leaders' clocks measure Keep, so a clock that is set ahead shortens it.
//
// An effect's key names the effect, not the attempt: "pay/" and an order's number. It belongs to
// the shard and, in a keyspace (package sharding), to one of the keyspace's keys. When ranges are
// split or merged, [Take] transfers the effects, with their idempotency keys.
//
// # Costs
//
// An effect takes up two items until it ends, and two until Keep has passed. They hold about 200
// bytes, twice the key, and the result. A new effect costs no read; an effect with a record costs
// one. If eight or more effects are in progress, a write waits up to 2 ms for others to join it.
//
// A ledger keeps only its open effects in memory. [Options.Concurrent] limits the effects that are
// being attempted, and [Options.MaxInDoubt] those that are not. At most 1024 effects are nested.
// Above MaxInDoubt, Do begins no new effect.
package effect
