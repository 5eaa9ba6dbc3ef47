package sqlite

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestQuiet counts the statements of idle processes. A look takes two statements, and a third for
// other processes' heartbeats.
func TestQuiet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		processes int
		most      float64 // looks of all processes
		options   Options
	}{
		"one":    {1, 1, Options{}},
		"two":    {2, 2, Options{}},
		"polled": {2, 6, Options{NoNotify: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &harness{path: filepath.Join(t.TempDir(), "suite.db")}
			var backends []driver.Backend
			hears := func() bool { return true }
			for range c.processes {
				b, st, err := h.openStore(t.Context(), "app", &c.options, new(sqlfault.Wire))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { b.Close() })
				backends = append(backends, b)
				if others := hears; !c.options.NoNotify { // a slow disk, or no inotify instance, makes it deaf for up to 30 s
					hears = func() bool { return st.Hears() && others() }
				}
			}
			sqlfault.CheckQuiet(t, c.most, "looks", h.calls.Reads.Load, hears, backends...)
		})
	}
}

// hearing opens a backend, and returns its store.
func hearing(t *testing.T, path string, o Options) (driver.Backend, *store) {
	t.Helper()
	b, st, err := (&harness{path: path}).openStore(t.Context(), "app", &o, new(sqlfault.Wire))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, st
}

// TestUntold: another process's change without a hint is reported.
func TestUntold(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "suite.db")
	writer, _ := hearing(t, path, Options{NoNotify: true})
	reader, st := hearing(t, path, Options{IdlePollPeriod: time.Second})
	hears := func() { ample.Wait(t, "the file system does not notify", st.Hears) }
	sqlfault.CheckUntold(t, writer, reader, hears, func() {})
}

// TestHintsFile: processes hear each other's changes and heartbeats, but not their own heartbeats.
// If the file is removed, the processes find a new one.
func TestHintsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "suite.db")
	_, a := hearing(t, path, Options{IdlePollPeriod: time.Second})
	_, b := hearing(t, path, Options{IdlePollPeriod: time.Second})
	told := func() {
		t.Helper()
		ample.Wait(t, "the file system does not notify", func() bool { return a.Hears() && b.Hears() })
		for _, kind := range []engine.Readers{engine.Observers, engine.Tailers, engine.Watchers} {
			heard := b.Changed(kind)
			a.hints.Tell(kind)
			select {
			case <-heard:
			case <-time.After(ample.Time):
				t.Fatalf("readers %d of another process hear nothing", kind)
			}
		}
	}
	told()
	own := a.Changed(engine.Watchers)
	a.hints.Tell(engine.Watchers)
	told() // it comes after the other one
	select {
	case <-own:
		t.Error("it hears its own heartbeat")
	default:
	}
	if err := os.Remove(path + hintsSuffix); err != nil {
		t.Fatal(err)
	}
	ample.Wait(t, "there is no other file", func() bool {
		_, err := os.Stat(path + hintsSuffix)
		return err == nil
	})
	for _, s := range []*store{a, b} {
		ample.Wait(t, "not both use it", func() bool {
			s.link.mu.Lock()
			defer s.link.mu.Unlock()
			return s.link.file != nil && !s.link.replaced()
		})
	}
	told()
}

// TestHintsRefused: without the hints file, changes are polled.
func TestHintsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "suite.db")
	if err := os.Mkdir(path+hintsSuffix, 0o700); err != nil {
		t.Fatal(err)
	}
	writer, _ := hearing(t, path, Options{})
	reader, st := hearing(t, path, Options{})
	sqlfault.CheckUntold(t, writer, reader, func() {}, func() {})
	if st.Hears() {
		t.Error("it hears through a folder")
	}
}
