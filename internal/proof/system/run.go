package system

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/history/linearizable"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// seedLimit limits one run.
const seedLimit = 5 * time.Minute

// Run calls Play for a test, and skips the test with -short. If the environment variable
// suite.ReportDir is set, Run saves the figures in that directory.
func Run(t *testing.T, c Config) *Report {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: real processes run in make system")
	}
	total := Play(suite.Wrap(t), c, &Caller{
		Again: func(seed uint64) string {
			return fmt.Sprintf("in the folder of the test: go test -run '^%s$' . -args -%s=%d", rootName(t.Name()), seedFlag, seed)
		},
		Keep: os.TempDir(),
	})
	if dir := os.Getenv(suite.ReportDir); dir != "" && total.Runs > 0 {
		if err := total.Save(dir, total.Backend); err != nil {
			t.Error(err)
		}
	}
	return total
}

// Caller contains the parts of the failure messages that depend on Play's caller.
type Caller struct {
	// Again returns the command that repeats a seed.
	Again func(seed uint64) string
	// Keep is the folder for histories of failures. If Keep is empty, histories are not saved.
	Keep string
}

// Supported returns the reason why the suite cannot run on this platform, or "" if it can.
func Supported() string {
	if supported {
		return ""
	}
	return "the system suite needs Linux: it stops processes, and compares their clocks"
}

// Play runs one seed after another as subtests, which are named after their seeds. Play logs and
// returns the figures. A violation fails the seed's subtest. The failure contains the broken rule,
// an explanation, the folder with the history, and the command that repeats the seed. With
// Config.Control, Play instead fails t if too few runs do damage.
//
// Play needs Linux, where processes share a clock, and skips the test on other systems. Because
// Play measures time, it must not run in parallel with other tests.
func Play(t suite.T, c Config, by *Caller) *Report {
	t.Helper()
	if why := Supported(); why != "" {
		t.Skipf("%s", why)
	}
	c, err := c.withDefaults()
	if err != nil {
		t.Fatalf("%v", err)
	}
	c.Control = c.Control || flagged[bool](flag.CommandLine, controlFlag)
	total := &Report{Backend: c.Opener.Name, Figures: suite.Figures{TTL: c.TTL, Control: c.Control}}
	seeds := make(chan uint64)
	var mu sync.Mutex
	var players sync.WaitGroup
	for range c.Parallel {
		players.Go(func() {
			for seed := range seeds {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t suite.T) {
					if r := c.run(t, seed, by); r != nil {
						mu.Lock()
						defer mu.Unlock()
						total.add(r)
					}
				})
			}
		})
	}
	for _, seed := range c.seeds() {
		seeds <- seed
	}
	close(seeds)
	players.Wait()
	t.Logf("%v", total)
	if c.Control && !total.Suffices() && t.Context().Err() == nil {
		t.Errorf("without the fence only %d of %d runs did damage: the schedule is too kind, and zero violations with "+
			"the fence prove nothing", total.Failed, total.Runs)
	}
	return total
}

// seeds returns the seeds to run, from the flags or the configuration.
func (c *Config) seeds() []uint64 {
	if one := flagged[uint64](flag.CommandLine, seedFlag); one != 0 {
		return []uint64{one}
	}
	n := c.Seeds
	if more := flagged[int](flag.CommandLine, seedsFlag); more > 0 {
		n = more
	}
	first := max(1, c.First)
	if flagged := flagged[uint64](flag.CommandLine, firstFlag); flagged > 1 {
		first = flagged
	}
	var out []uint64
	for i := range n {
		out = append(out, first+uint64(i))
	}
	return out
}

// run plays one seed, and checks the results. If the seed was not played, run returns nil.
func (c *Config) run(t suite.T, seed uint64, by *Caller) *Report {
	began := time.Now()
	s, err := c.play(t, seed)
	if err != nil && (len(s.journals) == 0 || t.Context().Err() != nil) {
		t.Errorf("%v", err)
		return nil
	}
	played := time.Since(began)
	e, loadErr := s.evidence()
	if loadErr != nil {
		t.Errorf("%v", errors.Join(err, loadErr))
		return nil
	}
	found := s.findings
	if err != nil { // the logs were not read
		found = append(found, newFinding("V2", checkPlayed, "", "%v", err))
	} else {
		found = append(found, e.judge()...)
	}
	if c.Control { // searching for an order that does not exist takes a long time
		found = append(found, history.Check(e.history, nil)...)
	} else {
		found = append(found, history.Check(e.history, &history.Options{MinCommits: c.MinWrites})...)
		found = append(found, linearizable.Check(e.history, time.Minute)...)
	}
	traced, breaches := s.traced(t.Context())
	if !c.Control { // a control accepts stale writes
		found = append(found, breaches...)
	}
	r := e.measure(found)
	r.Steps, r.Compared = traced.Steps, traced.Replayed
	if r.Takeovers < c.MinTakeovers {
		found = append(found, newFinding("traffic", checkTakeovers, "",
			"a shard's owner changed %d times, and fewer than %d prove nothing", r.Takeovers, c.MinTakeovers))
	}
	if r.Late == 0 {
		found = append(found, newFinding("traffic", checkLate, "",
			"no write was held until another member had been granted the shard, the case that the fence is for"))
	}
	if c.Control && r.Damage > 0 || !c.Control && len(found) > 0 {
		r.Failed = 1
	}
	for _, x := range e.takeovers() {
		if x.forced && x.took > longLimit(c.TTL) {
			t.Logf("%v: %v", x.reason(c.TTL), &x)
		}
	}
	t.Logf("played in %v, judged in %v: %v", played.Round(time.Millisecond),
		(time.Since(began) - played).Round(time.Millisecond), r)
	switch {
	case !c.Control && len(found) > 0:
		r.Findings = found
		t.Errorf("%s", c.explain(s, by, e.history, found))
	case c.Control && err != nil:
		t.Errorf("%v\n%s", err, s.story())
	case c.Control && r.Damage == 0:
		t.Logf("no damage without the fence:\n%s", s.story())
	}
	return r
}

// play runs the processes of one seed.
func (c *Config) play(t suite.T, seed uint64) (*supervisor, error) {
	s := &supervisor{config: *c, seed: seed, store: c.Store(t, seed)}
	var err error
	if s.dir, err = os.MkdirTemp("", "tenure-system-"); err != nil {
		return s, err
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(s.dir); err != nil {
			t.Errorf("%v", err)
		}
	})
	for i := range c.Shards {
		s.shards = append(s.shards, driver.ShardID(fmt.Sprintf("s%d", i+1)))
	}
	s.schedule = newSchedule(seed, c.TTL, c.Steps, s.store)
	ctx, cancel := context.WithTimeout(t.Context(), seedLimit)
	defer cancel()
	return s, s.play(ctx)
}

// evidence reads the processes' files.
func (s *supervisor) evidence() (*evidence, error) {
	e := &evidence{config: s.config, journals: map[string][]note{}, logs: s.logs, injections: s.injections,
		poll: s.poll, rank: max(10*time.Millisecond, s.poll*3/2)} // the same as core's
	var err error
	if e.history, err = history.Load(s.written()...); err != nil {
		return nil, err
	}
	for process, path := range s.journals {
		if e.journals[process], err = loadJournal(path); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// written returns the existing histories. A process may be killed before it begins a history.
func (s *supervisor) written() []string {
	return slices.DeleteFunc(slices.Clone(s.paths), func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || info.Size() == 0
	})
}

func (s *supervisor) story() string {
	var b strings.Builder
	for _, k := range s.injections {
		fmt.Fprintf(&b, "\t%v\n", k)
	}
	return b.String()
}

// maxShown limits the number of findings that are printed. All findings are saved.
const maxShown = 5

func (c *Config) explain(s *supervisor, by *Caller, h *history.History, found []history.Finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d violations\n", len(found))
	for _, f := range found[:min(len(found), maxShown)] {
		fmt.Fprintf(&b, "%v\n", f)
	}
	fmt.Fprintf(&b, "the faults:\n%s", s.story())
	again := by.Again(s.seed)
	if by.Keep == "" {
		fmt.Fprintf(&b, "to play it again: %s", again)
		return b.String()
	}
	path, err := history.Save(by.Keep, fmt.Sprintf("tenure-system-%s-seed%d", c.Opener.Name, s.seed), again, h,
		found)
	if err == nil {
		err = linearizable.Draw(path, h, found)
	}
	if err != nil {
		fmt.Fprintf(&b, "%v\n", err)
	}
	fmt.Fprintf(&b, "history: %s\nto play it again: %s", path, again)
	return b.String()
}

// rootName returns the name of the test that called Run.
func rootName(name string) string {
	root, _, _ := strings.Cut(name, "/")
	return root
}
