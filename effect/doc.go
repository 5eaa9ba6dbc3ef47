// Package effect makes effects outside the store once: a payment, an e-mail, a call of a tool.
// No transaction of the store covers them, and no fence reaches them. A [Ledger] writes what is
// to be done before it is done, and the result after it. After a crash or a takeover the next
// leader knows what the former one had begun.
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
// The handler opens the ledger when it begins, and closes it before it returns. Do with a key
// that was done returns the result of then, under any later lease, and calls nothing. An
// idempotent consumer asks [Ledger.Lookup], which is one read.
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
// Each arrow is one fenced write. Effects that run at once share them: 64 at once cost less
// than a tenth of a call to the store for each. If the store refuses the outcome of an effect
// and the lease stays valid, the ledger tries the write again every minute.
//
// An attempt that ends without an answer (a time-out, a lost connection) may have happened.
// It is never attempted again by itself, unless somebody says that this does no harm:
//
//   - [Options.Repeatable]: the other side makes an effect once for each idempotency key. Then
//     an effect happens exactly once.
//   - [Options.Resolve] finds out: it asks the other side for the key, and decides that it is
//     done, or is to be repeated, or failed, which includes that it was compensated.
//   - Else it stays in doubt for a person: [Ledger.InDoubt] and [ReadOpen] list such effects,
//     and [Options.OnError] is told each. [Options.Stats] counts them, for metrics and the board.
//
// # What is not guaranteed
//
// A process can be stopped after the intent was written and before fn sends its request, for
// any time. When it goes on, it sends the request, though another leader has taken over and
// may have decided about the effect. No library can prevent this. It does no harm where the
// other side honours idempotency keys. Elsewhere fn passes the lease's token, if the other side
// can compare it (package fence), or Resolve answers Repeat only for what cannot happen any
// more; that the other side does not know the key yet does not prove that. With
// Resolve that leaves such effects in doubt, none is made twice without being listed.
//
// An effect is made again if Do is called for it after [Options.Keep]. The clocks of the leaders
// measure it, so one that is set ahead shortens it.
//
// The key of an effect names what is done, not the attempt: "pay/" and an order's number. It
// belongs to the shard, and in a keyspace (package sharding) to one of the keyspace's keys: where
// ranges are split or merged, [Take] brings the effects along, with their idempotency keys.
//
// # Costs
//
// An effect is two items until it ended, and then two until Keep is over: some 200 bytes and
// twice its key, and the result. A new effect costs no read, one that has a record costs one.
// Where eight or more are under way, a write waits up to 2 ms for others to go with it.
//
// In memory a ledger has its open effects only. They are bounded: by [Options.Concurrent] those
// that are attempted, and by [Options.MaxInDoubt] the others; with more of those Do begins
// nothing new.
package effect
