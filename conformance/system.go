package conformance

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/garbage"
	"github.com/tenure-go/tenure/internal/proof/suite"
	"github.com/tenure-go/tenure/internal/proof/system"
)

// SystemConfig configures [TestSystem]. Opener and Store are required. If all other fields are
// zero, TestSystem makes the standard run, which takes 6 to 10 s per seed.
type SystemConfig = system.Config

// SystemStore is an empty namespace for one run, with functions that cause faults in its store. If
// a function is nil, the schedules omit its fault.
type SystemStore = system.Store

// Main implements the TestMain of a package that calls [TestSystem]. If TestSystem started this
// test binary as a member, Main runs the member. In any other process, Main runs the tests. Main
// returns the exit status.
//
//	func TestMain(m *testing.M) { os.Exit(conformance.Main(m, sqlite.Opener())) }
func Main(m *testing.M, openers ...driver.Opener) int { return system.Main(m, openers...) }

// TestSystem runs the system suite, which tests the safety of a backend and core under real faults
// in real processes. TestSystem fails t at the first violation, and reports the seed and the folder
// that contains the history. TestSystem logs the counts and measurements of the runs. If
// TENURE_CONFORMANCE_REPORT is set to a directory, TestSystem saves the figures there.
//
//	func TestMain(m *testing.M) { os.Exit(conformance.Main(m, sqlite.Opener())) }
//
//	func TestSystem(t *testing.T) {
//		conformance.TestSystem(t, conformance.SystemConfig{
//			Opener: sqlite.Opener(),
//			Store: func(_ conformance.T, seed uint64) *conformance.SystemStore {
//				path := filepath.Join(t.TempDir(), "tenure.db")
//				return &conformance.SystemStore{Options: sqlite.Settings{Path: path, Namespace: "system"}}
//			},
//		})
//	}
//
//	go test ./mystore -run '^TestSystem$' -v -args -system.seeds=100 -system.parallel=2
//
//	-system.seeds N     so many seeds, instead of the test's number
//	-system.first F     beginning with this one and not with 1
//	-system.seed S      one seed, to play a failure again
//	-system.parallel N  so many at a time, where the test has a server for each
//	-system.control     without the fence: 19 of 20 runs must do damage
//
// If the store is a server, the functions of [SystemStore] inject its faults. These functions
// restart the server, stop and continue it (SIGSTOP and SIGCONT), or cut its connections, for
// example with [Proxy]. SystemConfig.Store starts the store with an empty namespace. The test may
// also start the store in TestMain, after [Main] has found that the process is not a member.
//
// # A run
//
// For each seed, the test starts 3 to 8 copies of its own binary as members. The members contend
// for a few shards through core.Elector. Each handler appends entries as fast as it can. Each entry
// contains the token, the count and the head of the log, as the handler knows them. A schedule
// derived from the seed injects faults. The schedule kills members with SIGKILL, and restarts them
// after or within the TTL, with or without superseding the killed session. The schedule stops
// members with SIGSTOP for longer than the TTL. A stop may begin at any moment, for example after
// core has checked a write but before core sends it, or before the reply arrives. The schedule also
// stops members for less than the margin. These short stops must have no effect. Members leave,
// withdraw and hand over. The schedule also injects any faults of the store that the configuration
// provides. Throughout the run, each member's wire loses requests and replies, and delivers
// requests late.
//
// At the end, all members contend without faults, and every shard must accept writes (W1). Finally,
// all members leave in an orderly way, and the test reads every log.
//
// # The judges
//
// Validators and the porcupine checker check the calls and the trust that each process recorded.
// TestSystem compares the logs with core's answers to each writer. The logs must contain each
// acknowledged write exactly once, and no refused writes (S15, S16). Each accepted entry has the
// token that the writer believed it held (S3). Handlers start and stop in order (S11). A stop
// within the margin does not end a lease (S9). An outage does not cause an eviction (C5). A member
// that evicts another member reports the eviction exactly once (C9). A run with too little traffic
// fails. A control run plays the same schedule without the fence, and fails if it does no damage.
//
// A takeover takes at most 1.05 TTL plus 50 ms and two poll periods, or 1.5 TTL if there are other
// faults (V1). Before applying this limit, TestSystem subtracts three kinds of delay, each for as
// long as its cause lasted. First, members restart their measurement of the silence if the store
// was away or accepted no member's writes for half a TTL, or if the successor was stopped. Second,
// the store may answer the successor late. Third, the machine may not run the successor, which a
// clock in each process detects. For the last two kinds, TestSystem subtracts the delay of the
// least delayed member that was present throughout.
//
// # What it does not do
//
// The seed determines the fault schedule, but not how the processes run. The processes use a real
// scheduler and a real store. A failing seed may fail again only after several repetitions.
// TestSystem keeps each failure's history.
func TestSystem(t *testing.T, c SystemConfig) {
	t.Helper()
	system.Run(t, c)
}

// TestGarbage runs four members in this process, alongside a compromised member. Four goroutines of
// the compromised member write garbage through [Store.Tamper] as fast as they can. They stop after
// the given duration, or after 3 s if it is 0. The whole test takes a few seconds longer. The
// compromised member first damages the records of some shards and of its session, and then the
// records of operators' rules and of plans.
//
// The other members must keep their leases on the undamaged shards, and their heap may grow by at
// most 64 MB. The other members may log each damaged record at most once a minute. TestGarbage
// measures the heap, so nothing else may run in the process, and t must not be parallel. The create
// argument is like [Harness.New].
func TestGarbage(t *testing.T, create func(T) *Store, during time.Duration) {
	t.Helper()
	store := create(suite.Wrap(t))
	if store.Tamper == nil {
		t.Fatal("conformance.Store.Tamper is nil: set it, so that garbage can be written")
	}
	kinds := []Tampering{
		garbage.Shard: CorruptShard, garbage.Head: CorruptHead, garbage.Entry: CorruptEntry, garbage.Member: CorruptMember,
		garbage.Beat: CorruptBeat, garbage.Impossible: ImpossibleShard, garbage.Oversize: OversizeShard,
	}
	tamper := func(ctx context.Context, what garbage.Kind, name string) error {
		return store.Tamper(ctx, kinds[what], name)
	}
	garbage.Test(t, garbage.Store{Open: store.Open, Tamper: tamper, Compact: store.Compact}, cmp.Or(during, 3*time.Second))
}
