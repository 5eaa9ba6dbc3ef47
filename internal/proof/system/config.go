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

// Config configures Run. Opener and Store are required. With the zero value of everything else it
// is the standard run, which takes 6 to 10 s for each seed.
type Config struct {
	// Opener opens the backend, here and in the members. Main or Member must get it too.
	Opener driver.Opener
	// Store makes an empty namespace for one run. t's cleanup removes it.
	Store func(t conformance.T, seed uint64) *Store

	// Members is the number of processes, 3 to 8. 0: the seed decides.
	Members int
	// Shards is the number of shards that they share. Default 6.
	Shards int
	// TTL is the members' TTL. Default 500 ms, or the backend's MinTTL if that is more.
	TTL time.Duration
	// Steps is the number of faults of a schedule. Default 10, at least 4. More are added, up to
	// twice as many, while there is too little evidence. Enough are MinTakeovers takeovers, and two
	// writes that were held until another member had been granted their shard.
	Steps int
	// Pace is the least time between two writes to one shard. Default TTL/50.
	Pace time.Duration
	// Seeds is the number of runs: seeds 1 to Seeds. Default 3. The flags -system.seeds and
	// -system.seed, which runs a single one, take precedence.
	Seeds int
	// First is the first seed. Default 1. The flag -system.first takes precedence.
	First uint64

	// Parallel is the number of seeds played at a time. Default 1. More need a server each, because
	// a fault of the store would hit all that share it. The function Parallel returns the value of
	// the flag -system.parallel.
	Parallel int

	// MinWrites and MinTakeovers are the numbers of accepted writes, and of changes of a shard's
	// owner, that a run must reach. It continues until then, up to a limit, and fails below them,
	// because it would prove nothing. Defaults 1000 and 5.
	MinWrites, MinTakeovers int

	// Control takes the fence away, by a decorator of the backend that no shipped package contains.
	// If fewer than 19 of 20 runs show damage, Run fails. The flag -system.control sets it.
	Control bool
}

// Store is an empty namespace for one run, with the faults of its store. A fault may be nil, and
// the schedules then omit it.
type Store struct {
	// Options are the opener's settings, as a value that encoding/json can write and read back: the
	// backend's own settings, or a map. They describe how another process reaches the store. No
	// output shows them.
	Options any

	// Restart stops the store and starts it again with its data. It returns when the store answers.
	Restart func(ctx context.Context) error
	// Pause keeps the store from answering writes until resume, which is called exactly once. It
	// must cause no eviction (C5).
	Pause func(ctx context.Context) (resume func() error, err error)
	// Cut takes the members' connections away until heal, which is called exactly once. It must
	// cause no eviction (C5).
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
