// Package tenuretest runs an application's own handler and follower while it injects faults.
// Several members run in one testing/synctest bubble, with the memory store and fake time. A test
// of a few lines injects hundreds of faults in seconds.
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
// cuts members off from the store, loses replies, and crashes and restarts members. The seed
// determines when faults happen and how long each call takes. The scenario itself checks the
// outcome. Tenure's own tests check Tenure's rules.
//
// For an effect outside the store, call [Member.Do], which represents the network. If a member is
// paused or suspended between a check and an effect, the effect still happens when the member
// resumes, as in a real process. A fence protects against such late effects. [Lease.Err] does not.
//
// # A failing seed
//
// Each seed is a subtest. When a seed fails, the output ends with the events and a command that
// replays them:
//
//	go test -run '^TestOrders$/^seed=7$'
//
// For a long run, set the number of seeds with the environment variable TENURETEST_SEEDS.
//
// # The control
//
// A test that cannot fail proves nothing. [Control] plays the scenario on stores without a fence,
// and fails if the scenario then passes.
//
// # What it does not do
//
// A paused or suspended member stops only at calls to the store and in Do. The member's timers
// continue, so the member may see its leases end earlier than a real process would. The clock of a
// suspended machine appears to stand still only to Tenure. Goroutines that are ready at the same
// instant run in any order. The scenario must take all its randomness from [World.Rand].
//
// [Lease.Err]: https://pkg.go.dev/github.com/tenure-go/tenure/core#Lease.Err
package tenuretest
