// Package tenuretest runs an application's own handler and follower under faults. Several members
// run in one testing/synctest bubble, on the memory store, in fake time. A few lines of a test
// play hundreds of accidents in seconds.
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
// [Run] plays the scenario once for each seed. World.Play pauses members, suspends their machines,
// cuts them off from the store, loses replies, and crashes and restarts them. The seed determines
// when faults happen, and how long each call takes. The scenario's own checks judge the outcome.
// Tenure's rules have their own tests.
//
// An effect outside the store goes through [Member.Do], which stands for the network. If a member
// is paused or suspended between a check and its effect, it makes the effect afterwards, however
// late, as a real process does. A fence protects against this. [Lease.Err] does not.
//
// # A failing seed
//
// Each seed is a subtest. A failure ends with the events, and the command that repeats them:
//
//	go test -run '^TestOrders$/^seed=7$'
//
// For a long run, set the number of seeds with the environment variable TENURETEST_SEEDS.
//
// # The control
//
// A test that cannot fail shows nothing. [Control] plays the scenario on stores without a fence,
// and fails unless the scenario fails.
//
// # What it does not do
//
// A paused or suspended member stops only where it meets others: at calls to the store and in Do.
// Its own timers continue, so it may see its leases end earlier than a real process would. The
// clock of a suspended machine stands still only for Tenure. Goroutines that are ready at the same
// instant run in any order. The scenario must take its own randomness from [World.Rand].
//
// [Lease.Err]: https://pkg.go.dev/github.com/tenure-go/tenure/core#Lease.Err
package tenuretest
