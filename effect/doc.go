// Package effect makes each effect outside the store happen once. Examples of such effects are a
// payment, an e-mail and a call to a tool. No transaction of the store covers these effects, and no
// fence can stop them. A [Ledger] records the intent before the effect, and the result after it.
// After a crash or a takeover, the next leader therefore knows which effects the former leader had
// begun.
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
// The handler opens the ledger when it begins, and closes it before it returns. If the effect is
// already done, even under an earlier lease, Do returns the stored result without calling fn. An
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
// Each arrow is one fenced write. Concurrent effects share writes. With 64 concurrent effects, each
// effect costs less than a tenth of a call to the store. If the store refuses the outcome of an
// effect and the lease stays valid, the ledger tries the write again every minute.
//
// If an attempt ends without an answer (a time-out, a lost connection), its effect may have
// happened. The ledger repeats the attempt only if the application states that a repetition is
// harmless:
//
//   - [Options.Repeatable] states that the other side makes an effect once for each idempotency
//     key. Each effect then happens exactly once.
//   - [Options.Resolve] asks the other side about the key, and decides that the effect is done,
//     should be repeated, or failed. An effect that was compensated counts as failed.
//   - If neither is set, the effect stays in doubt until a person decides. [Ledger.InDoubt] and
//     [ReadOpen] list such effects, [Options.Logger] logs each of them, and [Options.Stats] counts
//     them, for metrics and the board.
//
// # What is not guaranteed
//
// A process can be stopped for any time after it has written the intent and before it sends fn's
// request. When the process continues, it sends the request, although another leader has taken over
// and may have decided the effect's outcome. No library can prevent this. A late request is
// harmless if the other side honours idempotency keys. Otherwise, fn can pass the lease's token, if
// the other side can compare tokens (package fence). Alternatively, let Resolve return Repeat only
// for an effect that can no longer happen. If the other side does not know the key yet, this proves
// nothing, because the request may still arrive. If Resolve leaves all such effects in doubt, each
// effect that might happen twice is listed as in doubt.
//
// If Do is called for an effect after [Options.Keep] has passed, it makes the effect again.
//
// An effect's key names the effect, not the attempt, for example "pay/" followed by an order's
// number. The key belongs to the shard and, in a keyspace (package sharding), to one of the
// keyspace's keys. When ranges are split or merged, [Take] transfers the effects, with their
// idempotency keys.
//
// # Costs
//
// An effect takes up two items while it is open, and two items after its end, until Keep has
// passed. The items contain about 200 bytes, the key twice, and the result. A new effect costs no
// read. An effect that has a record costs one read. If eight or more effects are in progress, a
// write waits up to 2 ms for other writes to join it.
//
// A ledger keeps only its open effects in memory. [Options.Concurrent] limits the open effects that
// are being attempted, and [Options.MaxInDoubt] limits the other open effects. At most 1024 effects
// are nested. Once MaxInDoubt is reached, Do begins no new effect.
package effect
