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

// SystemConfig configures [TestSystem]. Opener and Store are required. If everything else has its
// zero value, SystemConfig describes the standard run, which takes 6 to 10 s for each seed.
type SystemConfig = system.Config

// SystemStore is an empty namespace for one run, with the faults of its store. A fault may be nil.
// The schedules then omit it.
type SystemStore = system.Store

// Main is for the TestMain of a package that calls [TestSystem]. If TestSystem started this test
// binary as a member, Main runs it as a member. Otherwise, it adds the flags and runs the tests.
// The result is the exit status.
//
//	func TestMain(m *testing.M) { os.Exit(conformance.Main(m, sqlite.Opener())) }
func Main(m *testing.M, openers ...driver.Opener) int { return system.Main(m, openers...) }

// TestSystem is the system suite. It tests the safety of a backend together with core, with real
// processes and real faults. It fails t at the first violation, and gives the seed and the folder
// of its history. It logs the counts and measurements of the runs. If TENURE_CONFORMANCE_REPORT
// names a directory, TestSystem saves the figures there.
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
// A store that is a server offers its faults as the functions of [SystemStore]: a restart, a stop
// and a continuation (SIGSTOP and SIGCONT), or a cut, for example by [Proxy].
// The test starts the store in SystemConfig.Store, with an empty namespace. It may also start the
// store in TestMain, after [Main] has found that the process is no member.
//
// # A run
//
// For each seed, the test starts 3 to 8 copies of its own binary as members. They contend for a few
// shards through core.Elector. Each handler appends entries as fast as it can. An entry contains
// what the handler believes: its token, its count, and the head of the log. A schedule derived from
// the seed injects faults. It kills members with SIGKILL, and restarts them after or within the
// TTL, with or without superseding the killed session. It stops members with SIGSTOP for longer
// than the TTL: at any moment, between core's check of a write and its sending, and between sending
// and reply. It also stops members within the margin, which must have no effect. Members leave,
// withdraw and hand over. If the configuration has faults of the store, the schedule injects these,
// too. Throughout, each member's wire loses requests and replies, and delivers requests late.
//
// At the end, all members contend without faults, and every shard must take writes (W1). Then all
// members leave in order, and the test reads every log.
//
// # The judges
//
// Validators and porcupine judge each process's record of its calls and of its trust. TestSystem
// compares the logs with core's answers to each writer. The logs have acknowledged writes exactly
// once, and no refused writes (S15, S16). No entry was accepted under a token other than the one in
// which its writer believed (S3). Handlers start and stop in order (S11). A stop within the margin
// ends no lease (S9). An outage evicts no member (C5). A member that evicts another reports this
// exactly once (C9). A run with too little traffic fails. A control, which is the same schedule
// without the fence, fails if it does no damage.
//
// A takeover takes at most 1.05 TTL, 50 ms and two poll periods, or 1.5 TTL if there are other
// faults (V1). Three kinds of delay are subtracted first, for as long as their reason lasted.
// First, silence counts again from the start if the store was away, if it accepted no member's
// writes for half a TTL, or if the successor was stopped. Second, the store answered the successor
// late. Third, the machine did not run the successor, according to a clock in each process. For the
// last two kinds, the delay of the least delayed member counts, among the members that were present
// all the time.
//
// # What it does not do
//
// The seed decides the schedule, but not the course of the processes, because they run on a real
// scheduler and a real store. A failing seed may need several repetitions to fail again. The
// history of a failure is kept.
func TestSystem(t *testing.T, c SystemConfig) {
	t.Helper()
	system.Run(t, c)
}

// TestGarbage runs four members in this process, alongside a compromised one. For the time during,
// the compromised member's four goroutines write garbage through [Store.Tamper] as fast as they can.
// If during is 0, it is 3 s. The whole test takes a few seconds more. The compromised member damages
// the records of some shards, its own session's record, and then the records of operators' rules
// and of plans.
//
// The others must keep their leases on the undamaged shards and use at most 50 MiB more of the
// heap. They may log a damaged record at most once a minute. TestGarbage measures the heap, so
// nothing else may run in the process. Therefore, t must not be parallel. create is as
// [Harness.New].
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
	garbage.Test(t, garbage.Store{Open: store.Open, Tamper: func(ctx context.Context, what garbage.Kind, name string) error {
		return store.Tamper(ctx, kinds[what], name)
	}}, cmp.Or(during, 3*time.Second))
}
