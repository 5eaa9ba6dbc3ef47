// Package history records the operations of a store's clients under faults, and
// judges afterwards whether any correct store and library allows them.
//
// A [Recorder] notes each [Operation] with the instants at which it was called and
// at which it returned, and its outcome: ok, refused, or unknown. [Wrap] puts one
// around a driver.Backend. Processes that may be killed record into their own files
// ([Create]); [Load] merges them. All instants come from one monotonic clock of the
// host ([Now]), so they can be compared over processes.
//
// [Check] judges a [History] by named validators, each for one property of the
// design, and returns their findings: tokens-increase (S2), no-overlap-of-trust (S1),
// log-is-a-prefix (T1 to T4, S15, S16), accepted-writes-in-token-order and
// nothing-accepted-after-a-higher-grant (S3), number-sequence (S15),
// takeover-after-end (A1), one-life-of-a-session (M1 to M3, A5),
// writes-agree-with-the-heads-of-grants and fenced-for-a-reason (F1). They need only
// the standard library. Package linearizable, beside this one, asks porcupine whether
// any order of the operations explains their outcomes.
//
// [Save] writes a failing history to a directory, with the command that replays it.
//
// A history must hold all operations on its shards, from a namespace without
// records on: an operation that nobody recorded looks like damage. That is why a
// recorder writes the call before it is made. Unknowable facts stay open: a refusal
// for another reason than the shard's record is taken to have done nothing, and the
// payload of an entry is compared by its digest.
//
// # What it does not do
//
// It does not judge liveness or the views of Observe, and does not compare the
// clocks of two hosts.
package history
