// Package tenuretest plays an application's own handler and follower under faults:
// several members in one testing/synctest bubble, on the memory store, in fake time.
// A few lines of a test play a hundred different accidents in seconds.
//
//	func TestOrders(t *testing.T) {
//		tenuretest.Run(t, nil, func(w *tenuretest.World) {
//			ledger := newLedger() // what outlives a member
//			w.Start(3, func(ctx context.Context, m *tenuretest.Member) error {
//				return run(ctx, m.Backend(), m.Options(), guarded{m, ledger}) // as the program's main does
//			})
//			w.Play()
//			w.Stop()
//			if err := ledger.check(); err != nil {
//				w.Errorf("%v", err)
//			}
//		})
//	}
//
// # What happens
//
// [Run] plays the scenario once for each seed. World.Play pauses members, suspends
// their machines, cuts them off the store, loses replies, and crashes and restarts
// them, at instants that follow from the seed. Every call takes a time that follows
// from the seed as well. A scenario is judged by its own checks; Tenure's rules have
// tests of their own.
//
// An effect outside the store goes through [Member.Do], which stands for the network:
// a member that is paused or suspended between a check and its effect makes the effect
// afterwards, however late, as a real process does. That is what a fence is for, and
// [Lease.Err] is not.
//
// # A failing seed
//
// Each seed is a subtest. A failure ends with what happened, and the command that
// plays the same again:
//
//	go test -run '^TestOrders$/^seed=7$'
//
// The environment variable TENURETEST_SEEDS sets the number of seeds, for a long run.
//
// # The control
//
// A test that cannot fail shows nothing. [Control] plays the scenario on stores that
// have no fence, and fails unless the scenario does.
//
// # What it does not do
//
// A paused or suspended member is stopped where it meets others: at calls to the store
// and in Do. Its own timers go on, so its leases may end earlier, seen by itself, than
// those of a real process. The clock of a suspended machine stands still for Tenure
// only. Goroutines that are ready at the same instant run in any order; the scenario's
// own randomness has to come from [World.Rand].
//
// [Lease.Err]: https://pkg.go.dev/github.com/tenure-go/tenure/core#Lease.Err
package tenuretest
