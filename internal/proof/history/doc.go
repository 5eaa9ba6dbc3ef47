// Package history records the operations of a store's clients under faults. It then judges whether
// a correct store and library could have produced them.
//
// A [Recorder] notes each [Operation] with the instants of its call and its return, and its
// outcome: ok, refused, or unknown. [Wrap] puts one around a driver.Backend. Processes that may be
// killed record into their own files ([Create]), and [Load] merges them. All instants come from one
// monotonic clock of the host ([Now]), so instants of different processes can be compared.
//
// [Check] judges a [History] by named validators, each for one property of the design, and returns
// their findings: tokens-increase (S2), no-overlap-of-trust (S1), log-is-a-prefix (T1 to T4, S15,
// S16), accepted-writes-in-token-order and nothing-accepted-after-a-higher-grant (S3),
// number-sequence (S15), takeover-after-end (A1), one-life-of-a-session (M1 to M3, A5),
// writes-agree-with-the-heads-of-grants and fenced-for-a-reason (F1). They need only the standard
// library. Package linearizable uses porcupine to find an order of the operations that explains
// their outcomes.
//
// [Save] writes a failing history to a directory, with the command that replays it.
//
// A history must have all operations on its shards since the namespace was empty, because an
// unrecorded operation looks like damage. So a recorder writes a call before it is made. If the
// shard's record is not the reason of a refusal, Check assumes that the call had no effect. It
// compares payloads of entries by their digests.
//
// # What it does not do
//
// It does not judge liveness or the views of Observe, and does not compare the clocks of two hosts.
package history
