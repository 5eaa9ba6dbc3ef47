// Package history records the calls of a store's clients under faults, and then judges whether a
// correct store and library could have produced that history.
//
// A [Recorder] notes each [Operation] with the instants of its call and its return, and its
// outcome: ok, refused, or unknown. [Wrap] makes a driver.Backend record its calls. Processes that
// may be killed record into their own files ([Create]), which [Load] merges. All instants come from
// one monotonic clock of the host ([Now]), so instants of different processes can be compared.
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
// A history must contain all operations on its shards since the namespace was empty, because an
// unrecorded operation looks like damage. Therefore, a recorder writes down each call before the
// call is made. If the shard's record is not the reason for a refusal, Check assumes that the call
// had no effect. Check compares the payloads of entries by their digests.
//
// # What it does not do
//
// The package does not judge liveness or the views of Observe, and it does not compare the clocks
// of two hosts.
package history
