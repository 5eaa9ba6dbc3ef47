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

// The kinds.
const (
	Pause     Faults = 1 << iota // the process is stopped, and goes on later
	Suspend                      // the machine is: the process's clock stands still, too
	Cut                          // the store is out of reach; what was sent may arrive later
	LostReply                    // writes, and effects of Do, are applied and not answered
	Crash                        // the process ends at once, and is started again later
	AllFaults = Pause | Suspend | Cut | LostReply | Crash
)

// Options say what is played. The zero value, and nil, work.
type Options struct {
	// Seeds is how many seeds are played, from 1 on. Default 20. The environment
	// variable TENURETEST_SEEDS goes before it.
	Seeds int
	// Length is how long World.Play plays faults, in the bubble's time. Default 20 TTL,
	// at most 24 h.
	Length time.Duration
	// TTL of Member.Options. Default 1 s, at least 10 ms, at most 1 h.
	TTL time.Duration
	// Faults are the kinds that are played. Default AllFaults.
	Faults Faults
}

// seedsVariable is the environment variable that goes before Options.Seeds.
const seedsVariable = "TENURETEST_SEEDS"

// maxSeeds bounds what one test plays.
const maxSeeds = 1_000_000

// resolve returns a copy with the defaults filled in, or says what is wrong.
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

// Run plays the scenario once for each seed, each in its own bubble and as a subtest,
// up to the first that fails. The scenario runs in its own goroutine; members that it
// leaves running are stopped when it returns. Nil options work.
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

// Control plays the scenario as Run does, on stores without a fence: a write under a
// superseded token is applied, as by an application that checks nothing. It passes at
// the first seed that fails, which it logs, and fails if none does: then the scenario's
// checks see no damage, and passing Run means nothing. A scenario whose effects have
// their own fence leaves it out where World.Control is true.
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
		case w == nil: // not asked for by -run
		case len(w.failures) > 0:
			t.Logf("the control fails with seed %d, as it must: %s", seed, w.failures[0])
			return
		}
	}
	t.Errorf("the control did not fail in %d seeds: without a fence nothing goes wrong that the scenario checks: "+
		"check more, play longer, or have effects outside the store go through Member.Do", c.Seeds)
}

// play plays one seed.
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

// replay is the command that plays the test of that name again.
func replay(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return fmt.Sprintf("go test -run '%s'", strings.Join(parts, "/"))
}
