// Package system tests the safety of a backend together with core, with real
// processes and real faults.
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
// A store that is a server offers its faults as the functions of [Store]: it is
// restarted, or stopped and continued (SIGSTOP and SIGCONT), or cut off, as by a proxy
// of the test's that members connect through. The test starts it in Config.Store, with
// a namespace that is empty, or in a TestMain after [Main] has seen that the process is
// no member.
//
// # A run
//
// For each seed the test starts 3 to 8 copies of its own binary as members, which
// contend for a few shards through core.Elector. Each handler appends entries as
// fast as it may, with its beliefs in them: its token, its count, the head of the
// log. A schedule from the seed injects faults: SIGKILL, with a restart after or
// inside the TTL, superseding or not; SIGSTOP past the TTL at any moment, between
// core's check of a write and its sending, and between sending and reply; SIGSTOP
// within the margin, which nobody may notice; leaving, withdrawing and handing
// over; and, where the configuration can, faults of the store. Throughout, each
// member's wire loses requests and replies and delivers requests late.
//
// At the end everybody contends in quiet. Every shard must be written to (W1);
// then all leave in order, and every log is read.
//
// # The judges
//
// Each process's record of its calls and of its trust is judged by validators and by
// porcupine. This package compares the logs with core's
// answers to each writer: acknowledged writes are there exactly once, refused ones
// are not (S15, S16); no entry was accepted under another token than its writer
// believed in (S3); handlers start and stop in order (S11); a stop within the
// margin ends no lease (S9); an outage evicts nobody (C5); the member that evicted
// another one says so, once (C9). A run with too little traffic fails, and so does a
// control, the same schedule without the fence, that does no damage.
//
// A takeover takes at most 1.05 TTL, 50 ms and two poll periods, or 1.5 TTL beside
// other faults, less what has a reason (V1). A reason explains no more than it lasted: the store was
// away, or took no member's writes for half a TTL, as while its servers elect a leader, or
// the successor stopped, and silence counts anew; the store answered the
// successor late; or the machine did not run it, by a clock in each process. As much
// of the last two counts as the least delayed member had that was there all the time.
//
// # What it does not do
//
// The schedule follows the seed; the processes' course does not, as they run on a
// real scheduler and a real store. A failing seed may need some repetitions to fail
// again; its history is kept.
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

// Config configures [Run]. Opener and Store are required; the zero value of everything
// else is the standard run, which takes 6 to 10 s for each seed.
type Config = system.Config

// Store is an empty namespace for one run, with the faults of its store. A fault may be
// nil; the schedules then do without it.
type Store = system.Store

// Main is for TestMain: it makes this test binary a member when Run started it as one, and
// otherwise adds the flags and runs the tests. The result is the status to exit with.
//
//	func TestMain(m *testing.M) { os.Exit(system.Main(m, sqlite.Opener())) }
func Main(m *testing.M, openers ...driver.Opener) int { return system.Main(m, openers...) }

// Run plays the runs and fails t at the first violation, with the seed and the folder of its
// history. It logs what the runs counted and measured. With conformance.ReportDir in the
// environment the figures are saved there.
func Run(t *testing.T, c Config) {
	t.Helper()
	system.Run(t, c)
}

// Garbage runs four members, in this process, beside a compromised one that writes garbage
// through store.Tamper as fast as it can, with four goroutines. Default (0) of during is
// 3 s; the whole test takes some seconds more. It damages the records of some
// shards, its own session's, and then those of operators' rules and of plans.
//
// The others must keep their leases on the shards that are left alone, need no more than
// 50 MiB more of the heap, and log a damaged record at most once a minute. It looks at the
// heap, so nothing else may run in the process: t must not be parallel.
func Garbage(t *testing.T, store *conformance.Store, during time.Duration) {
	t.Helper()
	if store.Tamper == nil {
		t.Fatal("conformance.Store.Tamper is nil: set it, so that garbage can be written")
	}
	garbage.Test(t, store, 4, cmp.Or(during, 3*time.Second))
}
