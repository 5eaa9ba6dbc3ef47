package system

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// startMember starts a member on a new database, and waits until it is up.
func startMember(t *testing.T, l *launcher) *process {
	t.Helper()
	dir := t.TempDir()
	options, err := json.Marshal(sqlite.Settings{Path: filepath.Join(dir, "tenure.db"), Namespace: "system"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.start(memberConfig{
		Opener: sqlite.Opener().Name, Options: options, Node: "m1", Process: "m1.1", Shards: []string{"s1"},
		TTL: testTTL, Pace: time.Millisecond, Seed: 1,
		History: filepath.Join(dir, "history"), Journal: filepath.Join(dir, "journal"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	ample.Wait(t, "the member does not start", p.isUp)
	return p
}

func TestMemberEndsWithItsInput(t *testing.T) {
	t.Parallel()
	l := newLauncher()
	t.Cleanup(l.close)
	p := startMember(t, l)
	if err := p.CloseInput(); err != nil {
		t.Fatal(err)
	}
	ample.Wait(t, "the member does not end", p.Ended)
	if p.Err() == nil || !strings.Contains(p.Err().Error(), "supervisor has gone") {
		t.Errorf("it ended with %v", p.Err())
	}
}

// A stopped process does not see its input end, so the kernel kills it.
func TestStoppedMemberEndsWithItsSupervisor(t *testing.T) {
	t.Parallel()
	l := newLauncher()
	p := startMember(t, l)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	l.close()
	ample.Wait(t, "the member does not end", p.Ended)
}

// The runtime never ends the main thread. If a launcher ran on that thread, the launcher's
// processes would not die with it.
func TestLauncherLeavesTheMainThread(t *testing.T) {
	// Usually, one of these goroutines runs on the main thread, because there are more goroutines
	// than existing threads.
	for range 200 {
		l := newLauncher()
		on := make(chan bool)
		l.requests <- func() { on <- syscall.Gettid() == syscall.Getpid() }
		if <-on {
			t.Fatal("processes are started from the main thread")
		}
		l.close()
	}
}

func TestMemberRefusesAnUnknownOpener(t *testing.T) {
	t.Parallel()
	l := newLauncher()
	t.Cleanup(l.close)
	dir := t.TempDir()
	p, err := l.start(memberConfig{Opener: "nosuch", Process: "m1.1", History: filepath.Join(dir, "h"),
		Journal: filepath.Join(dir, "j")})
	if err != nil {
		t.Fatal(err)
	}
	ample.Wait(t, "the member does not end", p.Ended)
	if p.Err() == nil || !strings.Contains(p.Err().Error(), `no opener "nosuch"`) {
		t.Errorf("it ended with %v", p.Err())
	}
}

// TestNothingIsLeft runs a short seed and looks for processes and files that the seed left behind.
func TestNothingIsLeft(t *testing.T) {
	c, err := Config{Opener: sqlite.Opener(), Members: 3, Steps: minSteps, MinWrites: 1, MinTakeovers: 1,
		TTL: testTTL / 2,
		Store: func(suite.T, uint64) *Store {
			return &Store{Options: sqlite.Settings{Path: filepath.Join(t.TempDir(), "tenure.db"), Namespace: "system"}}
		}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.play(suite.Wrap(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.journals) < 4 {
		t.Errorf("only %d processes were started, and a restart was due", len(s.journals))
	}
	for _, node := range s.nodes {
		if !node.proc.Ended() {
			t.Errorf("%s is left", node.proc.Name)
		}
	}
	for process := range s.journals {
		if _, err := os.Stat(filepath.Join(s.dir, process+".history")); err != nil {
			t.Error(err)
		}
	}
}
