package tenuretest

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Faults is a set of fault kinds.
type Faults uint8

// These are the kinds of faults.
const (
	Pause     Faults = 1 << iota // the process stops, and continues later
	Suspend                      // the machine stops: the process's clock also stands still
	Cut                          // the store cannot be reached; requests that were sent may arrive later
	LostReply                    // writes and effects of Do take effect, but get no reply
	Crash                        // the process ends suddenly, and starts again later
	AllFaults = Pause | Suspend | Cut | LostReply | Crash
)

// Options contains the settings of Run and Control. Nil and the zero value mean the defaults.
type Options struct {
	// Seeds is the number of seeds to play, beginning with 1. The default is 20. The environment
	// variable TENURETEST_SEEDS overrides Seeds.
	Seeds int
	// Length is how long World.Play injects faults, in bubble time. The default is 20 times TTL,
	// and the maximum is 24 h.
	Length time.Duration
	// TTL is the value of TTL in Member.Options. The default is 1 s, the minimum is 10 ms, and the
	// maximum is 1 h.
	TTL time.Duration
	// Faults are the kinds of faults to inject. The default is AllFaults.
	Faults Faults
}

const seedsVariable = "TENURETEST_SEEDS"

const maxSeeds = 1_000_000

// resolve returns a copy with the defaults filled in, or an error that explains what to change.
func (o *Options) resolve() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if v := os.Getenv(seedsVariable); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return c, fmt.Errorf("tenuretest: %w: %s is %.40q: set it to a number from 1 on", core.ErrInvalid, seedsVariable, v)
		}
		c.Seeds = n
	}
	if c.Seeds == 0 {
		c.Seeds = 20
	}
	if c.TTL == 0 {
		c.TTL = time.Second
	}
	if c.Length == 0 {
		c.Length = 20 * c.TTL
	}
	if c.Faults == 0 {
		c.Faults = AllFaults
	}
	switch {
	case c.Seeds < 1 || c.Seeds > maxSeeds:
		return c, fmt.Errorf("tenuretest: %w options: Seeds %d is outside 1 to %d", core.ErrInvalid, c.Seeds, maxSeeds)
	case c.TTL < 10*time.Millisecond || c.TTL > time.Hour:
		return c, fmt.Errorf("tenuretest: %w options: TTL %v is outside 10ms to 1h", core.ErrInvalid, c.TTL)
	case c.Length < 0 || c.Length > 24*time.Hour:
		return c, fmt.Errorf("tenuretest: %w options: Length %v is outside 0 to 24h", core.ErrInvalid, c.Length)
	case c.Faults&^AllFaults != 0:
		return c, fmt.Errorf("tenuretest: %w options: Faults has bits that no kind has: use the constants", core.ErrInvalid)
	}
	return c, nil
}

// Run plays the scenario once for each seed, up to the first seed that fails. Each seed is a
// subtest with a separate bubble, in which the scenario runs in a goroutine. When the scenario
// returns, Run stops the members that are still running. Nil options mean the defaults.
func Run(t *testing.T, o *Options, scenario func(w *World)) {
	t.Helper()
	c, err := o.resolve()
	if err != nil {
		t.Fatal(err)
	}
	for seed := 1; seed <= c.Seeds; seed++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := play(t, c, seed, false, scenario)
			if len(w.failures) > 0 {
				t.Errorf("%s\n%s", strings.Join(w.failures, "\n"), w.story(t.Name()))
			}
		}) {
			return
		}
	}
}

// Control plays the scenario as Run does, but on stores without a fence. A store without a fence
// checks no tokens, and applies writes under superseded tokens. Control passes at the first seed
// that fails, and logs this seed. If no seed fails, Control fails, because checks that find no
// damage without a fence prove nothing in Run. A scenario whose effects have their own fence must
// omit that fence if World.Control returns true.
func Control(t *testing.T, o *Options, scenario func(w *World)) {
	t.Helper()
	c, err := o.resolve()
	if err != nil {
		t.Fatal(err)
	}
	for seed := 1; seed <= c.Seeds; seed++ {
		var w *World
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { w = play(t, c, seed, true, scenario) })
		switch {
		case t.Failed():
			return
		case w == nil: // the flag -run does not select this subtest
		case len(w.failures) > 0:
			t.Logf("the control fails with seed %d, as it must: %s", seed, w.failures[0])
			return
		}
	}
	t.Errorf("the control did not fail in %d seeds: without a fence nothing goes wrong that the scenario checks: "+
		"check more, play longer, or have effects outside the store go through Member.Do", c.Seeds)
}

func play(t *testing.T, o Options, seed int, control bool, scenario func(w *World)) (w *World) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, o, uint64(seed), control)
		played := make(chan struct{})
		go func() { defer close(played); scenario(w) }()
		<-played
		w.end()
	})
	return w
}

// replay returns the command that reruns the test with the given name.
func replay(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return fmt.Sprintf("go test -run '%s'", strings.Join(parts, "/"))
}
