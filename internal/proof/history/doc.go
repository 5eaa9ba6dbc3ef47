// Package history records the calls that a store's clients make under faults, and checks whether a
// correct store and library could have produced them.
//
// A [Recorder] records each [Operation] with the times of the call and of the return, and with the
// outcome: ok, refused, or unknown. [Wrap] makes a driver.Backend record its calls. Each process
// that may be killed records into a file ([Create]), and [Load] merges the files. All times come
// from one monotonic clock of the host ([Now]), so times from different processes can be compared.
//
// [Check] runs named validators on a [History], one for each property of the design, and returns
// the findings. The validators are tokens-increase (S2), no-overlap-of-trust (S1), log-is-a-prefix
// (T1 to T4, S15, S16), accepted-writes-in-token-order and nothing-accepted-after-a-higher-grant
// (S3), number-sequence (S15), takeover-after-end (A1), one-life-of-a-session (M1 to M3, A5),
// writes-agree-with-the-heads-of-grants and fenced-for-a-reason (F1). The validators need only the
// standard library. Package linearizable uses porcupine to search for an order of the operations
// that explains their outcomes.
//
// [Save] writes a failing history to a directory, with the command that repeats the run.
//
// A history must contain every operation on its shards since the namespace was empty, because the
// effect of an unrecorded operation looks like damage. A Recorder therefore records each call
// before the call begins. If the store refuses a call for a reason other than the shard's record,
// Check assumes that the call had no effect. Check compares digests instead of the entries'
// payloads.
//
// # What it does not do
//
// The package does not check liveness or the views of Observe. The package also does not compare
// the clocks of different hosts.
package history
