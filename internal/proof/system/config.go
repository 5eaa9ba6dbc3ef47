package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
)

// Config configures Run. Opener and Store are required; the zero value of
// everything else is the standard run, which takes 6 to 10 s for each seed.
type Config struct {
	// Opener opens the backend, here and in the members. It must be among those
	// that Main or Member is given.
	Opener driver.Opener
	// Store makes an empty namespace for one run; t's cleanup takes it away.
	Store func(t conformance.T, seed uint64) *Store

	// Members is how many processes take part, 3 to 8; 0 lets the seed decide.
	Members int
	// Shards is how many shards they share. Default 6.
	Shards int
	// TTL of the members. Default 500 ms, or the backend's MinTTL if that is more.
	TTL time.Duration
	// Steps is how many faults a schedule has. Default 10, at least 4. More are added,
	// up to twice as many, while there were fewer takeovers than MinTakeovers, or
	// fewer than two writes that were held until another member had been granted
	// their shard.
	Steps int
	// Pace is the least time between two writes to one shard. Default TTL/50.
	Pace time.Duration
	// Seeds is how many runs there are: seeds 1 to Seeds. Default 3. The flags
	// -system.seeds and -system.seed, which runs a single one, take precedence.
	Seeds int
	// First is the first seed. Default 1. The flag -system.first takes precedence.
	First uint64

	// Parallel is how many seeds are played at a time. Default 1; more need a server
	// each, because a fault of the store would hit all that share it. Parallel
	// returns the value of the flag -system.parallel.
	Parallel int

	// MinWrites and MinTakeovers are how many accepted writes, and changes of a
	// shard's owner, a run must reach: it goes on until then, within a bound, and
	// fails below it, because it would prove nothing. Defaults 1000 and 5.
	MinWrites, MinTakeovers int

	// Control takes the fence away, by a decorator of the backend that is not part
	// of any shipped package. Damage must then be found in all runs but one in
	// twenty, else Run fails. The flag -system.control sets it.
	Control bool
}

// Store is an empty namespace for one run, with the faults of its store. A fault
// may be nil; the schedules then do without it.
type Store struct {
	// Options are the opener's settings, as a value that encoding/json can write
	// and read back: the backend's own settings, or a map. They say how to reach
	// the store, so that another process can; they appear in no output.
	Options any

	// Restart stops the store and starts it again with its data, and returns when
	// it answers.
	Restart func(ctx context.Context) error
	// Pause keeps the store from answering writes until resume is called, which it
	// is exactly once. Nobody may be evicted for it (C5).
	Pause func(ctx context.Context) (resume func() error, err error)
	// Cut takes the members' connections away until heal is called, which it is
	// exactly once. Nobody may be evicted for it (C5).
	Cut func(ctx context.Context) (heal func() error, err error)
}

const (
	minMembers = 3
	maxMembers = 8
	minSteps   = 4
)

// withDefaults returns a copy with the defaults filled in, or an error that says what to change.
func (c Config) withDefaults() (Config, error) {
	if c.Opener.Name == "" || c.Opener.Open == nil || c.Store == nil {
		return c, errors.New("tenure: system: Config.Opener and Config.Store are required")
	}
	setInt(&c.Shards, 6)
	setInt(&c.Steps, 10)
	setInt(&c.Seeds, 3)
	setInt(&c.Parallel, 1)
	setInt(&c.MinWrites, 1000)
	setInt(&c.MinTakeovers, 5)
	if c.TTL == 0 {
		c.TTL = TTL(500 * time.Millisecond)
	}
	if c.Pace == 0 {
		c.Pace = c.TTL / 50
	}
	switch {
	case c.Members != 0 && (c.Members < minMembers || c.Members > maxMembers):
		return c, fmt.Errorf("tenure: system: Config.Members is %d: %d to %d, or 0 for the seed to decide", c.Members,
			minMembers, maxMembers)
	case c.Steps < minSteps:
		return c, fmt.Errorf("tenure: system: Config.Steps is %d: at least %d", c.Steps, minSteps)
	case c.Shards < 1 || c.Seeds < 1 || c.Parallel < 1 || c.MinWrites < 0 || c.MinTakeovers < 0 || c.TTL < 0 ||
		c.Pace < 0:
		return c, errors.New("tenure: system: a number of Config is negative: leave it 0 for its default")
	}
	return c, nil
}

func setInt(n *int, v int) {
	if *n == 0 {
		*n = v
	}
}

// open opens a backend from options that came as JSON.
func open(ctx context.Context, o driver.Opener, options json.RawMessage) (driver.Backend, error) {
	b, err := o.Open(ctx, func(into any) error { return json.Unmarshal(options, into) })
	if err != nil {
		return nil, fmt.Errorf("tenure: system: open %s: %w", o.Name, err)
	}
	return b, nil
}
