// Package fsm is the lease protocol as a pure state machine: no I/O, no clock,
// no goroutine, no global randomness. Package core runs it; applications use
// package core. Unstable until v1.
//
// [Machine.Step] takes one [Input] and an [Instant] and returns [Effect]s: calls
// to make, and leases granted, extended and revoked. The machine never waits; it
// says with [Machine.WakeAt] when it wants to be stepped next.
//
// # States
//
//	session:  idle -> joining -> live (trusted until) -> lost -> waiting -> joining ...
//	                               live <-> lapsed          any -> left, halted
//	peer:     heard (version, at) -> silent for its TTL -> my turn, and an own
//	          heartbeat sent since then succeeded -> evicted
//	shard:    free -> (my turn) acquiring -> held -> draining -> releasing or
//	          transferring -> free;  held, draining -> revoked on lapse, fence,
//	          preemption, spent budget or loss of the session
//
// # Time
//
// A holder trusts its leases until the instant before it sent its last successful
// heartbeat + TTL - margin. Another member evicts it, by the exact version of its
// record, after it saw no change for the holder's TTL, counted from when it
// received the last one. The reply comes after the sending, so the holder stops
// first whatever the network does; only the rates of the two clocks matter, and
// the margin covers their difference.
//
// # Level-triggered
//
// Whatever happens to a shard, a reply, a view, a timer, schedules it, and settle
// decides from its state alone what it needs next. There is no path that is right
// only for one order of events (rules C1, C2).
//
// # Rules
//
// The comments name the rules C1 to C11 and S1 to S16 of the design where the code
// exists because of them. A simulation of several machines over a faulty store,
// an exhaustive exploration and a fuzz target check them; each rule has been taken
// out to see the simulation fail.
//
// # What it does not do
//
// It does not write data: fenced commits are between core and the store, and
// depend on no trust. It assigns nothing: who should own what comes from outside,
// with InWant and InUnwant, and who claims a free shard first with InPrefer.
package fsm
