// Package effect makes effects outside the store once: a payment, an e-mail, a call of a tool. No
// transaction of the store covers such an effect, and no fence reaches it. A [Ledger] writes the
// intent before the effect, and the result after it. After a crash or a takeover the next leader
// knows which effects the former leader had begun.
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
// The handler opens the ledger when it begins, and closes it before it returns. If the key was
// already done, Do returns the stored result without calling fn, even under a later lease. An
// idempotent consumer uses [Ledger.Lookup], which is one read.
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
// Each arrow is one fenced write. Concurrent effects share writes: with 64 of them each costs less
// than a tenth of a call to the store. If the store refuses the outcome of an effect and the lease
// stays valid, the ledger tries the write again every minute.
//
// An attempt that ends without an answer (a time-out, a lost connection) may have happened. The
// ledger repeats it only if the application says that this does no harm:
//
//   - [Options.Repeatable]: the other side makes an effect once for each idempotency key. Then an
//     effect happens exactly once.
//   - [Options.Resolve] asks the other side for the key, and decides that the effect is done, is to
//     be repeated, or failed. An effect that was compensated counts as failed.
//   - Otherwise the effect stays in doubt for a person. [Ledger.InDoubt] and [ReadOpen] list such
//     effects, and [Options.Logger] gets each. [Options.Stats] counts them, for metrics and the
//     board.
//
// # What is not guaranteed
//
// A process can be stopped for any time after the intent was written and before fn sends its
// request. When it continues, it sends the request, although another leader has taken over and may
// have decided about the effect. No library can prevent this. It does no harm where the other side
// honours idempotency keys. Elsewhere fn passes the lease's token, if the other side can compare it
// (package fence). Or Resolve answers Repeat only for an effect that can no longer happen; a key
// that the other side does not know yet proves nothing. If Resolve leaves such effects in doubt,
// every effect that is made twice is listed.
//
// If Do is called for an effect after [Options.Keep], the effect is made again. The leaders' clocks
// measure Keep, so a clock that is set ahead shortens it.
//
// The key of an effect names the effect, not the attempt: "pay/" and an order's number. It belongs
// to the shard, and in a keyspace (package sharding) to one of the keyspace's keys. When ranges are
// split or merged, [Take] brings the effects along, with their idempotency keys.
//
// # Costs
//
// An effect has two items until it ends, and afterwards two until Keep is over: some 200 bytes plus
// twice its key, and the result. A new effect costs no read; an effect with a record costs one.
// When eight or more are in progress, a write waits up to 2 ms for others to join it.
//
// A ledger keeps only its open effects in memory. [Options.Concurrent] limits the effects that are
// attempted, 1024 the nested ones, and [Options.MaxInDoubt] the others. Above
// MaxInDoubt, Do begins no new effect.
package effect
