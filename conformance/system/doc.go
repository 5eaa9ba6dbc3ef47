// Package system tests the safety of a backend together with core, with real
// processes and real faults.
//
//	func TestMain(m *testing.M) { os.Exit(system.Main(m, sqlite.Opener())) }
//
//	func TestSystem(t *testing.T) {
//		system.Run(t, system.Config{Opener: sqlite.Opener(), Store: func(t *testing.T, seed uint64) *system.Store {
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
// A store that is a server offers its faults in three lines: Store.Restart takes
// the Restart of a server of package servers as it is, [Pausing] makes a
// Store.Pause of its Stop and Cont, and [Cutting] a Store.Cut of the proxy of
// package faultproxy that the members connect through. Such a test has a TestMain
// that calls [Member] first, because members start no servers; see
// backends/sql/postgres.
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
// Package history judges each process's record of its calls and of its trust,
// through its validators and porcupine. This package compares the logs with core's
// answers to each writer: acknowledged writes are there exactly once, refused ones
// are not (S15, S16); no entry was accepted under another token than its writer
// believed in (S3); handlers start and stop in order (S11); a stop within the
// margin ends no lease (S9); an outage evicts nobody (C5). A run with too little
// traffic fails, and so does a control, the same schedule without the fence, that
// does no damage.
//
// # What it does not do
//
// The schedule follows the seed; the processes' course does not, as they run on a
// real scheduler and a real store. A failing seed may need some repetitions to fail
// again; its history is kept.
package system
