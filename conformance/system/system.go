// Package system tests the safety of a backend together with core, with real processes and real
// faults.
//
//	func TestMain(m *testing.M) { os.Exit(system.Main(m, sqlite.Opener())) }
//
//	func TestSystem(t *testing.T) {
//		system.Run(t, system.Config{Opener: sqlite.Opener(), Store: func(_ conformance.T, seed uint64) *system.Store {
//			path := filepath.Join(t.TempDir(), "tenure.db")
//			return &system.Store{Options: sqlite.Settings{Path: path, Namespace: "system"}}
//		}})
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
// A store that is a server offers its faults as the functions of [Store]: a restart, a stop and a
// continuation (SIGSTOP and SIGCONT), or a cut, for example with a proxy that belongs to the test.
// The test starts the store in Config.Store, with an empty namespace. It may also start the store
// in TestMain, after [Main] has found that the process is no member.
//
// # A run
//
// For each seed, the test starts 3 to 8 copies of its own binary as members. They contend for a few
// shards through core.Elector. Each handler appends entries as fast as it can. An entry contains
// what the handler believes: its token, its count, and the head of the log. A schedule derived from
// the seed injects these faults: SIGKILL, with a restart after or inside the TTL, superseding or
// not; SIGSTOP past the TTL at any moment, between core's check of a write and its sending, and
// between sending and reply; SIGSTOP within the margin, which must have no effect; leaving,
// withdrawing and handing over; and, if the configuration has them, faults of the store.
// Throughout, each member's wire loses requests and replies and delivers requests late.
//
// At the end, all members contend without faults. Every shard must be written to (W1). Then all
// members leave in order, and every log is read.
//
// # The judges
//
// Validators and porcupine judge each process's record of its calls and of its trust. This package
// compares the logs with core's answers to each writer. The logs have acknowledged writes exactly
// once, and no refused writes (S15, S16). No entry was accepted under a token other than the one in
// which its writer believed (S3). Handlers start and stop in order (S11). A stop within the margin
// ends no lease (S9). An outage evicts no member (C5). A member that evicts another reports this
// exactly once (C9). A run with too little traffic fails. A control, which is the same schedule
// without the fence, fails if it does no damage.
//
// A takeover takes at most 1.05 TTL, 50 ms and two poll periods, or 1.5 TTL if there are other
// faults (V1). Delays with one of three reasons are subtracted first, for as long as the reason
// lasted. First, silence is counted again from the start if the store was away or accepted no
// member's writes for half a TTL. The same applies if the successor was stopped. Second, the
// store answered the successor late. Third, the machine did not run the successor, according to a
// clock in each process. For the last two reasons, what counts is the delay of the least delayed
// member among those present all the time.
//
// # What it does not do
//
// The seed decides the schedule, but not the course of the processes, because they run on a real
// scheduler and a real store. A failing seed may need several repetitions to fail again. The
// history of a failure is kept.
package system

import (
	"cmp"
	"testing"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/garbage"
	"github.com/tenure-go/tenure/internal/proof/system"
)

// Config configures [Run]. Opener and Store are required. If everything else has its zero value,
// Config describes the standard run, which takes 6 to 10 s for each seed.
type Config = system.Config

// Store is an empty namespace for one run, with the faults of its store. A fault may be nil. The
// schedules then omit it.
type Store = system.Store

// Main is for TestMain. If Run started this test binary as a member, Main runs it as a member.
// Otherwise, it adds the flags and runs the tests. The result is the exit status.
//
//	func TestMain(m *testing.M) { os.Exit(system.Main(m, sqlite.Opener())) }
func Main(m *testing.M, openers ...driver.Opener) int { return system.Main(m, openers...) }

// Run plays the runs. It fails t at the first violation, and gives the seed and the folder of
// its history. It logs what the runs counted and measured. If conformance.ReportDir is set in
// the environment, Run saves the figures there.
func Run(t *testing.T, c Config) {
	t.Helper()
	system.Run(t, c)
}

// Garbage runs four members in this process, alongside a compromised one. For the time during, the
// compromised member's four goroutines write garbage through store.Tamper as fast as they can. If
// during is 0, it is 3 s. The whole test takes a few seconds more. The compromised member damages
// the records of some shards, its own session's record, and then the records of operators' rules
// and of plans.
//
// The others must keep their leases on the undamaged shards and use at most 50 MiB more of the
// heap. They may log a damaged record at most once a minute. Garbage measures the heap, so
// nothing else may run in the process. Therefore, t must not be parallel.
func Garbage(t *testing.T, store *conformance.Store, during time.Duration) {
	t.Helper()
	if store.Tamper == nil {
		t.Fatal("conformance.Store.Tamper is nil: set it, so that garbage can be written")
	}
	garbage.Test(t, store, 4, cmp.Or(during, 3*time.Second))
}
