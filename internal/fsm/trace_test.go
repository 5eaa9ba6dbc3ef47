package fsm_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/proof/mutate"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/internal/trace"
)

var (
	tracesFlag = flag.String("traces", "", "the directory into which TestWriteTraces writes")
	scenesFlag = flag.String("scenes", "", "the directory into which tests that build one case write their traces")
	firstFlag  = flag.Uint64("firsttraced", 0, "the first seed that is written")
	tracedFlag = flag.Int("traced", 100, "of how many seeds the simulation's traces are written and checked")
)

// A recorder writes traces. It is safe for concurrent use.
type recorder struct {
	dir  string
	mu   sync.Mutex
	runs map[string]*traced
	err  error
}

type traced struct {
	file *os.File
	zip  *gzip.Writer
	enc  *json.Encoder
}

func (r *recorder) of(run string, cfg *fsm.Config, wall int64, now fsm.Instant) *traced {
	if t := r.runs[run]; t != nil || cfg == nil {
		return t
	}
	name := filepath.Join(r.dir, filepath.FromSlash(run)+trace.Suffix)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		r.err = err
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		r.err = err
		return nil
	}
	t := &traced{file: file, zip: gzip.NewWriter(file)}
	t.enc = json.NewEncoder(t.zip)
	r.runs[run] = t
	h := trace.NewHeader(driver.Info{Namespace: "simulated"}, cfg)
	h.Run, h.At, h.Wall = run, now, wall
	r.err = errors.Join(r.err, t.enc.Encode(h))
	return t
}

func (r *recorder) Step(run string, cfg *fsm.Config, wall int64, now fsm.Instant, in *fsm.Input, out []fsm.Effect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.of(run, cfg, wall, now); t != nil {
		rec := trace.NewRecord(now, in, out)
		rec.Wall = wall
		r.err = errors.Join(r.err, t.enc.Encode(rec))
	}
}

func (r *recorder) Acked(run string, wall int64, f driver.Fence, n driver.WriteNo, seq driver.Seq) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.of(run, nil, 0, 0); t != nil {
		a := &trace.Acks{Fence: f, From: n, To: n, Entries: 1, Seq: seq}
		r.err = errors.Join(r.err, t.enc.Encode(&trace.Record{At: 0, Wall: wall, Acks: a}))
	}
}

func (r *recorder) close() error {
	for _, t := range r.runs {
		r.err = errors.Join(r.err, t.zip.Close(), t.file.Close())
	}
	return r.err
}

// TestMain writes traces of tests that construct a single case, if a flag requests them.
func TestMain(m *testing.M) {
	flag.Parse()
	if *scenesFlag == "" {
		os.Exit(m.Run())
	}
	r := &recorder{dir: *scenesFlag, runs: make(map[string]*traced)}
	fsm.RecordScenes(r)
	code := m.Run()
	if err := r.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 2
	}
	os.Exit(code)
}

func of(dir string, seed uint64) string { return filepath.Join(dir, fmt.Sprintf("seed-%d", seed)) }

// write simulates a seed and writes the traces of its processes.
func write(t *testing.T, dir string, seed uint64) (broke error) {
	t.Helper()
	r := &recorder{dir: of(dir, seed), runs: make(map[string]*traced)}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	broke = fsm.Simulate(seed, r)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	return broke
}

// accepted checks the traces in a directory.
func accepted(t *testing.T, dir string) *trace.Report {
	t.Helper()
	all, err := trace.FilesIn(dir)
	if err != nil || len(all) == 0 {
		t.Fatalf("%s has no traces: %v", dir, err)
	}
	r, err := trace.Check(t.Context(), all, 0)
	if err != nil || len(r.Unread) > 0 {
		t.Fatalf("%s: %v, %q", dir, err, r.Unread)
	}
	return r
}

// TestTraces checks traces of the simulation: each step is accepted, and the members' leases,
// tokens, evictions and commits are consistent.
func TestTraces(t *testing.T) {
	t.Parallel()
	traced := share.Of(t, "traced", *tracedFlag, 10)
	dir := t.TempDir()
	var steps, leases, evictions, commits int64
	for seed := range uint64(traced) {
		if broke := write(t, dir, seed); broke != nil {
			t.Fatalf("seed %d: %v", seed, broke)
		}
		r := accepted(t, of(dir, seed))
		for _, b := range r.Breaches {
			t.Errorf("seed %d: %s: %s", seed, b.Rule, b.Text)
		}
		if r.Replayed != r.Steps {
			t.Errorf("seed %d: %d of %d steps were compared", seed, r.Replayed, r.Steps)
		}
		steps, leases, evictions, commits = steps+r.Steps, leases+int64(r.Leases), evictions+int64(r.Evictions), commits+r.Commits
	}
	t.Logf("%d traces: %d steps, %d leases, %d evictions and %d commits were accepted", traced, steps, leases, evictions, commits)
}

// TestWriteTraces writes traces for TestMutantsLeaveTraces.
func TestWriteTraces(t *testing.T) {
	if *tracesFlag == "" {
		t.Skip("writes traces for another test, with -traces DIRECTORY")
	}
	for n := range uint64(*tracedFlag) {
		_ = write(t, *tracesFlag, *firstFlag+n) // a mutant may break a rule
	}
}

// built lists the mutants whose case does not occur in mutantSeeds runs of the simulation, with the
// tests that build the case.
var built = map[string]string{
	"C6: heartbeats that nobody answers are sent for ever":                   "TestUnansweredHeartbeatsGoSilent",
	"C13: a turn outlives the record that it was for":                        "TestTurnEndsWithTheRecord",
	"C15: one that is new has to wait like the others":                       "TestGiftThatNobodyTakes",
	"C17: a full state that is older than a grant ends it":                   "TestUnlistedLockIsFree",
	"C17: a lock is forgotten while a call names its place":                  "TestOutstandingCallKeepsTheLock",
	"C17: no turn is left to the rivals for a lock":                          "TestLockRivals",
	"O1: a head that a view tells is believed whatever the record beside it": "TestHeadOfAnotherRecord",
	"S14: a token of two sessions goes unnoticed":                            "TestTokenOfTwoSessionsHalts",
}

// rare lists mutants whose case occurs in the simulation, but not within mutantSeeds runs.
var rare = []string{
	"C1: what a lock that was forgotten had burnt is granted again",
	"C16: the time of a member that was not eligible counts",
	"F1: the store does not look at the fence",
	"F1: the store ignores the number of a write",
}

// unmet lists the mutants that leave no evidence in a trace.
var unmet = []string{
	"C17: places of locks that were forgotten stay empty", // costs memory only
}

// goOn lists rules whose breach does not end a traced simulation. A store breaks these rules, and
// the simulation continues to show the consequences.
const goOn = "S1,S2,S3,S15,M2"

// mutantSeeds is the number of runs that are checked for each mutant, and rareSeeds for each rare
// mutant.
const (
	mutantSeeds = 60
	rareSeeds   = 2040
)

// TestScenes: the steps of the tests in built are accepted. In some of these tests, the store's
// behavior is not accepted.
func TestScenes(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range slices.Sorted(maps.Values(built)) {
		dir := t.TempDir()
		if out, err := exec.CommandContext(t.Context(), self, "-test.run", "^"+test+"$", "-scenes", dir).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", test, err, out)
		}
		if b := sceneOf(t, dir); b != nil {
			t.Errorf("%s: %s: %s", test, b.Rule, b.Text)
		}
	}
}

// sceneOf checks the traces of a test, up to the first step that is not accepted.
func sceneOf(t *testing.T, dir string) *trace.Breach {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "scene-*"))
	if err != nil || len(all) == 0 {
		t.Fatalf("%s has no scenes: %v", dir, err)
	}
	for _, scene := range all {
		r := accepted(t, scene)
		for i := range r.Breaches {
			if r.Breaches[i].Rule == "step" {
				return &r.Breaches[i]
			}
		}
		if r.Replayed != r.Steps || r.Steps == 0 {
			t.Errorf("%s: %d of %d steps were compared", scene, r.Replayed, r.Steps)
		}
	}
	return nil
}

// TestMutantsLeaveTraces: if a machine or a store lacks one of its rules, the check rejects at
// least one of its traces.
func TestMutantsLeaveTraces(t *testing.T) {
	names, edits := fsm.Mutants()
	if len(names) == 0 {
		return
	}
	_, built := mutate.Together(t, edits)
	t.Run("all", func(t *testing.T) {
		for n, name := range names {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				found := foundIn(t, func(args ...string) ([]byte, error) {
					return built[n].Command(t.Context(), args...).CombinedOutput()
				}, name)
				switch {
				case found != "":
					t.Log(found)
					if slices.Contains(unmet, name) {
						t.Error("it is among unmet: take it out")
					}
				case !slices.Contains(unmet, name):
					t.Error("all traces were accepted")
				}
			})
		}
	})
}

// foundIn returns the evidence of a mutant in its traces, if there is any. The function mutant runs
// the mutant's tests.
func foundIn(t *testing.T, mutant func(args ...string) ([]byte, error), name string) string {
	t.Helper()
	if test := built[name]; test != "" {
		dir := t.TempDir()
		// The test fails. Its traces should show the reason.
		_, _ = mutant("-test.run", "^"+test+"$", "-scenes", dir)
		if b := sceneOf(t, dir); b != nil {
			return fmt.Sprintf("%s: %s: %s", test, b.Rule, b.Text)
		}
		return ""
	}
	seeds := uint64(mutantSeeds)
	if slices.Contains(rare, name) {
		seeds = rareSeeds
	}
	for first := uint64(0); first < seeds; first += mutantSeeds {
		dir := t.TempDir()
		out, err := mutant("-test.run", "^TestWriteTraces$", "-traces", dir, "-ignore", goOn,
			"-firsttraced", strconv.FormatUint(first, 10), "-traced", strconv.Itoa(mutantSeeds))
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for seed := first; seed < first+mutantSeeds; seed++ {
			if b := accepted(t, of(dir, seed)).Breaches; len(b) > 0 {
				return fmt.Sprintf("seed %d: %s: %s", seed, b[0].Rule, b[0].Text)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	return ""
}
