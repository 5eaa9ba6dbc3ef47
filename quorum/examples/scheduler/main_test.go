package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

const childVariable = "TENURE_SCHEDULER_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// output is what a process prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestScheduler: three processes elect one, and if it is killed, another continues the numbers.
func TestScheduler(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	path := filepath.Join(dir, "scheduler.yaml")
	if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte("127.0.0.1"), []byte(host)), 0o600); err != nil {
		t.Fatal(err)
	}
	processes, outputs := map[string]*exec.Cmd{}, map[string]*output{}
	start := func(name string, flags ...string) {
		c := exec.Command(os.Args[0], append(flags, "-config", path, "-data", dir, name)...)
		o := &output{}
		c.Env, c.Stdout, c.Stderr = append(os.Environ(), childVariable+"=1"), o, o
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		processes[name], outputs[name] = c, o
	}
	end := func(name string, how os.Signal) {
		_ = processes[name].Process.Signal(how)
		_ = processes[name].Wait() // its error is the signal
	}
	defer func() {
		for name, o := range outputs {
			end(name, syscall.SIGKILL)
			if t.Failed() {
				t.Logf("%s printed %s", name, o)
			}
		}
	}()
	leader := func(run int) (leads string) {
		t.Helper()
		ample.Wait(t, fmt.Sprint("nobody does run ", run), func() bool {
			for name, o := range outputs {
				if strings.Contains(o.String(), fmt.Sprintf("run %d\n", run)) {
					leads = name
				}
			}
			return leads != ""
		})
		return leads
	}
	for _, name := range []string{"a", "b", "c"} {
		start(name, "-create")
	}
	first := leader(2)
	end(first, syscall.SIGKILL)
	last := strings.Count(outputs[first].String(), "run ") // at most one more was written and not printed
	if next := leader(last + 2); next == first {
		t.Errorf("%s does run %d after it was killed", next, last+2)
	}
	start(first)
	second := leader(last + 3)
	end(second, syscall.SIGTERM)
	if code := processes[second].ProcessState.ExitCode(); code != 0 {
		t.Errorf("%s ended with code %d after SIGTERM", second, code)
	}
	leader(last + 6)
}
