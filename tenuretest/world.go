package tenuretest

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
)

// maxEvents is the number of recent events that a failure shows.
const maxEvents = 60

// World is one play of a scenario, with a store, its members, and their faults. Only the scenario's
// goroutine may call its methods, except Logf, Errorf and Control, which are safe for concurrent
// use.
type World struct {
	t       *testing.T
	o       Options
	seed    uint64
	control bool
	rnd     *rand.Rand
	start   time.Time
	store   *memory.Store
	backend core.Backend // the store without faults, for the scenario's checks
	slots   []*slot
	late    sync.WaitGroup // requests that arrive after their callers gave up
	effects sync.Mutex     // held while an effect of Do is in progress
	stopped bool

	mu       sync.Mutex
	failures []string
	events   []string
	dropped  int
}

func newWorld(t *testing.T, o Options, seed uint64, control bool) *World {
	t.Helper()
	w := &World{t: t, o: o, seed: seed, control: control, rnd: rand.New(rand.NewPCG(seed, 1)),
		start: time.Now(), store: memory.New()}
	var err error
	if w.backend, err = memory.Open(t.Context(), w.store, namespace, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

const namespace = "tenuretest"

// Seed returns the current seed.
func (w *World) Seed() uint64 { return w.seed }

// Rand returns a random source, which depends on the seed, for the scenario's choices.
func (w *World) Rand() *rand.Rand { return w.rnd }

// Control reports whether this play is a control, on a store without a fence.
func (w *World) Control() bool { return w.control }

// Backend returns the store without faults, for the scenario's checks. The World closes the store.
func (w *World) Backend() core.Backend { return w.backend }

// Start starts n members, each in a separate goroutine. The function main represents a process.
// This function creates an Elector on m.Backend, runs the Elector until ctx ends (as on SIGTERM),
// and returns when everything has ended. After a crash, Start calls main again with another Member.
// If a member that did not crash returns an error, the scenario fails. Before Start, create the
// objects that outlive a process.
func (w *World) Start(n int, main func(ctx context.Context, m *Member) error) {
	for range n {
		s := &slot{w: w, node: fmt.Sprintf("m%d", len(w.slots)+1), main: main}
		w.slots = append(w.slots, s)
		s.start()
	}
}

// Play injects faults for Options.Length, in bubble time. Afterwards, Play ends all faults, and
// starts the members that are down. If there are two or more members, at least one member has no
// fault at any time.
func (w *World) Play() {
	w.note("faults begin")
	for _, s := range w.schedule() {
		w.sleepUntil(s.at)
		w.slots[s.member].apply(s)
	}
	for _, s := range w.slots {
		s.heal()
	}
	w.note("all faults are over")
}

// Look calls f while no member runs and no effect of Do is in progress. During the call, f may
// therefore read state that members and effects share. After Stop, the scenario may read this state
// without Look.
func (w *World) Look(f func()) {
	synctest.Wait()
	w.effects.Lock()
	defer w.effects.Unlock()
	f()
}

// Await waits until cond is true, for at most 1000 TTLs in bubble time. If cond is still false, the
// scenario fails and ends. Await calls cond in the same way as Look calls f.
func (w *World) Await(what string, cond func() bool) {
	step := w.o.TTL / 20
	for range 20 * 1000 {
		done := false
		w.Look(func() { done = cond() })
		if done {
			return
		}
		time.Sleep(step)
	}
	w.Fatalf("not within %v: %s", 1000*w.o.TTL, what)
}

// Stop shuts down all members in an orderly way, and waits until all of them have ended. After
// Stop, no member can start.
func (w *World) Stop() {
	if w.stopped {
		return
	}
	w.stopped = true
	w.note("all members are stopped")
	for _, s := range w.slots {
		s.heal()
	}
	for _, s := range w.slots {
		s.stop()
	}
	for _, s := range w.slots {
		s.lives.Wait()
	}
	w.late.Wait()
}

func (w *World) end() {
	w.Stop()
	if err := w.backend.Close(); err != nil {
		w.Errorf("closing the store: %v", err)
	}
}

// Errorf marks the scenario as failed. The scenario continues after Errorf.
func (w *World) Errorf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.mu.Lock()
	w.failures = append(w.failures, text)
	w.mu.Unlock()
	w.note("FAILED: %s", text)
}

// Fatalf is like Errorf, but also ends the scenario.
func (w *World) Fatalf(format string, args ...any) {
	w.Errorf(format, args...)
	runtime.Goexit()
}

// FailNow ends a failed scenario. With Errorf, FailNow and Helper, a World can be passed to
// assertion libraries.
func (w *World) FailNow() { runtime.Goexit() }

// Helper does nothing.
func (w *World) Helper() {}

// Logf adds a line to the events that a failure shows.
func (w *World) Logf(format string, args ...any) { w.note(format, args...) }

func (w *World) note(format string, args ...any) {
	line := fmt.Sprintf("%12.6fs  ", time.Since(w.start).Seconds()) + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) >= maxEvents {
		w.events = w.events[1:]
		w.dropped++
	}
	w.events = append(w.events, line)
}

func (w *World) story(test string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "play it again, in this package's folder: %s\n", replay(test))
	if w.dropped > 0 {
		fmt.Fprintf(&b, "what happened at last, after %d earlier events:\n", w.dropped)
	} else {
		b.WriteString("what happened:\n")
	}
	b.WriteString(strings.Join(w.events, "\n"))
	return b.String()
}

func (w *World) sleepUntil(at time.Duration) {
	time.Sleep(at - time.Since(w.start))
}

// draw returns a number from 0 to n-1. The number depends on the seed, the time and the purpose,
// but not on the order in which goroutines draw.
func (w *World) draw(n int64, what ...any) int64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, w.seed, "\x00", int64(time.Since(w.start)))
	for _, x := range what {
		_, _ = fmt.Fprint(h, "\x00", x)
	}
	return rand.New(rand.NewPCG(h.Sum64(), 2)).Int64N(n)
}
