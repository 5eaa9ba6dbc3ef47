package system

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

func TestJournalOfAKilledProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j, err := createJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	j.add(note{Is: noteStarted, Shard: "s", Token: 3})
	if _, err := j.file.WriteString(`{"is":"wro`); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	notes, err := loadJournal(path)
	if err != nil || len(notes) != 1 || notes[0].Token != 3 || notes[0].At == 0 {
		t.Errorf("loaded %+v, %v", notes, err)
	}
	if _, err := createJournal(path); err == nil {
		t.Error("an incarnation went on in the journal of another")
	}
	if err := os.WriteFile(path, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadJournal(path); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a damaged journal: %v", err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	base := Config{
		Opener: driver.Opener{Name: "x", Open: func(context.Context, func(any) error) (driver.Backend, error) {
			return nil, nil
		}},
		Store: func(suite.T, uint64) *Store { return &Store{} },
	}
	c, err := base.withDefaults()
	if err != nil || c.TTL != testTTL || c.Pace != 10*time.Millisecond || c.MinWrites != 1000 || c.MinTakeovers != 5 {
		t.Errorf("defaults %+v, %v", c, err)
	}
	for name, change := range map[string]func(*Config){
		"required": func(c *Config) { c.Store = nil },
		"Members":  func(c *Config) { c.Members = 9 },
		"Steps":    func(c *Config) { c.Steps = 1 },
		"negative": func(c *Config) { c.Pace = -1 },
	} {
		bad := base
		change(&bad)
		if _, err := bad.withDefaults(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	AddFlags(fs)
	if err := fs.Parse([]string{"-system.seed=7", "-system.seeds=3", "-system.control"}); err != nil {
		t.Fatal(err)
	}
	seed, seeds, control := flagged[uint64](fs, seedFlag), flagged[int](fs, seedsFlag), flagged[bool](fs, controlFlag)
	if seed != 7 || seeds != 3 || !control {
		t.Errorf("read %d, %d, %v", seed, seeds, control)
	}
	if flagged[bool](flag.NewFlagSet("none", flag.ContinueOnError), controlFlag) {
		t.Error("a flag that was not added is set")
	}
}

// Not parallel, because failures go to the directory for temporary files.
func TestFailureSaysHowToReplayIt(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c := Config{Opener: driver.Opener{Name: "sqlite"}}
	s := &supervisor{seed: 17, injections: []*injection{{step: step{Fault: faultKill}, process: "m1.1", at: 5},
		{step: step{Fault: faultPause}, at: 9}}}
	h := &history.History{Operations: []history.Operation{{Process: "m1.1", ID: 1, Kind: history.Join, Call: 1,
		Return: 2, Outcome: history.OK}}}
	var found []history.Finding
	for range maxShown + 1 {
		found = append(found, newFinding("S3", checkBelief, "s1", "a former owner wrote"))
	}
	by := &Caller{Keep: os.TempDir(), Again: func(seed uint64) string { return fmt.Sprintf("again with %d", seed) }}
	text := c.explain(s, by, h, found)
	for _, want := range []string{
		"6 violations", `S3 nothing-accepted-under-a-superseded-token: shard "s1": a former owner wrote`,
		"5 m1.1: SIGKILL", "9 store: the store pauses",
		"to play it again: again with 17",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the explanation lacks %q:\n%s", want, text)
		}
	}
	_, path, _ := strings.Cut(text, "history: ")
	path, _, _ = strings.Cut(path, "\n")
	if loaded, err := history.Load(filepath.Join(path, "history.jsonl")); err != nil || len(loaded.Operations) != 1 {
		t.Errorf("the history in %q: %v", path, err)
	}
}
