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

// Faults is a set of kinds of faults.
type Faults uint8

// These are the kinds of faults.
const (
	Pause     Faults = 1 << iota // the process is stopped, and continues later
	Suspend                      // the machine is stopped: the process's clock stands still, too
	Cut                          // the store is out of reach; sent requests may arrive later
	LostReply                    // writes and effects of Do are applied, but not answered
	Crash                        // the process ends suddenly, and is started again later
	AllFaults = Pause | Suspend | Cut | LostReply | Crash
)

// Options configure Run and Control. Nil and the zero value mean the defaults.
type Options struct {
	// Seeds is the number of seeds to play, beginning with 1. Default 20. The environment
	// variable TENURETEST_SEEDS overrides it.
	Seeds int
	// Length is how long World.Play plays faults, in the time of the bubble. Default 20 TTL, at
	// most 24 h.
	Length time.Duration
	// TTL is the TTL in Member.Options. Default 1 s, at least 10 ms, at most 1 h.
	TTL time.Duration
	// Faults are the kinds of faults to play. Default AllFaults.
	Faults Faults
}

// seedsVariable is the environment variable that overrides Options.Seeds.
const seedsVariable = "TENURETEST_SEEDS"

// maxSeeds limits the seeds of one test.
const maxSeeds = 1_000_000

// resolve returns a copy with the defaults filled in, or an error that says what to change.
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

// Run plays the scenario once for each seed, up to the first seed that fails. Each seed has its
// own bubble and is a subtest. The scenario runs in its own goroutine. When it returns, Run stops
// the members that still run. Nil options mean the defaults.
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

// Control plays the scenario as Run does, but on stores without a fence. These apply a write under
// a superseded token, as an application without checks would. Control passes at the first seed that
// fails, and logs it. If no seed fails, Control fails: the scenario's checks see no damage, so a
// Run that passes proves nothing. If a scenario's effects have their own fence, the scenario must
// omit that fence if World.Control is true.
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
		case w == nil: // -run does not select it
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

// replay returns the command that plays a test by its name again.
func replay(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return fmt.Sprintf("go test -run '%s'", strings.Join(parts, "/"))
}
