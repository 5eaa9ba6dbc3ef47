// Package effect makes effects outside the store, such as a payment, an e-mail or a call to a tool,
// happen once. No store transaction covers such an effect, and no fence can stop it. A [Ledger]
// records the intent before the effect, and the result after it. After a crash or a takeover, the
// next leader therefore knows which effects the former leader had begun.
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
// already done, even under an earlier lease, Do returns the stored result without calling fn. To
// check whether an effect is done without performing it, call [Ledger.Lookup], which costs one or
// two reads.
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
// Each arrow is one fenced write. Concurrent effects share writes. With 64 concurrent effects, an
// effect costs less than a tenth of a call to the store. If the store refuses to record an effect's
// outcome while the lease stays valid, the ledger repeats the write every minute.
//
// If an attempt ends without an answer, for example because of a time-out or a lost connection, its
// effect may have happened. The ledger repeats the attempt only if the application states that a
// repetition is harmless:
//
//   - [Options.Repeatable] states that the receiver performs an effect only once for each
//     idempotency key. Each effect then happens exactly once.
//   - [Options.Resolve] asks the receiver about the key, and decides whether the effect is done,
//     has failed, or should be repeated. A compensated effect counts as failed.
//   - If neither is set, the effect stays in doubt until a person decides it. [Ledger.InDoubt] and
//     [ReadOpen] list such effects. [Options.Logger] logs each of these effects, and
//     [Options.Stats] counts them for metrics and the board.
//
// # What is not guaranteed
//
// A process may pause for any length of time between writing the intent and sending fn's request.
// When the process continues, it sends the request, even if another leader has taken over and
// decided the effect's outcome. No library can prevent such a late request. A late request is
// harmless if the receiver honors idempotency keys. If the receiver can compare tokens instead, let
// fn pass the lease's token (package fence). Otherwise, let Resolve return Repeat only for an
// effect that can no longer happen. It proves nothing if the receiver does not know the key,
// because the request may still arrive. If Resolve leaves all such effects in doubt, every effect
// that might happen twice is listed as in doubt.
//
// If Do is called for an effect after [Options.Keep] has passed, Do repeats the effect.
//
// A key identifies an effect, not an attempt: for example, "pay/" followed by an order's number.
// The key belongs to the shard and, in a keyspace (package sharding), to one of the keyspace's
// keys. When ranges are split or merged, [Take] transfers the effects together with their
// idempotency keys.
//
// # Costs
//
// An effect takes up two items in the store, both while it is open and until Keep has passed after
// its end. The items take up about 200 bytes, plus twice the key's length and the result's length.
// A new effect costs no read, and an effect that has a record costs one read. If eight or more
// effects are in progress, a write waits up to 2 ms for other writes to join it.
//
// A ledger keeps only its open effects in memory. [Options.Concurrent] limits the open effects that
// are being attempted, and [Options.MaxInDoubt] limits the other open effects. Once MaxInDoubt is
// reached, Do begins no new effect. At most 1024 nested effects can be in progress.
package effect
