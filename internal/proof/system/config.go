package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// Config configures Run. Opener and Store are required. If all other fields are zero, Run makes the
// standard run, which takes 6 to 10 s per seed.
type Config struct {
	// Opener opens the backend in this process and in the members. Pass Opener to Main or Member,
	// too.
	Opener driver.Opener
	// Store creates an empty namespace for one run. When t ends, its cleanup removes the namespace.
	Store func(t suite.T, seed uint64) *Store

	// Members is the number of processes, 3 to 8. If Members is 0, the seed determines the number.
	Members int
	// Shards is the number of shards that the members share. The default is 6.
	Shards int
	// TTL is the members' TTL. The default is 500 ms or the backend's MinTTL, whichever is longer.
	TTL time.Duration
	// Steps is the number of faults in a schedule, at least 4. The default is 10. While there is
	// too little evidence, the schedule continues, up to twice the number of steps. A run needs
	// MinTakeovers takeovers, and two writes that were held until another member had been granted
	// the shard.
	Steps int
	// Pace is the minimum time between two writes to one shard. The default is TTL/50.
	Pace time.Duration
	// Seeds is the number of runs. The default is 3. The runs use the seeds 1 to Seeds. The flag
	// -system.seeds overrides Seeds, and the flag -system.seed selects a single seed.
	Seeds int
	// First is the first seed. The default is 1. The flag -system.first overrides First.
	First uint64

	// Parallel is the number of seeds that run at the same time. The default is 1. If Parallel is
	// more than 1, each seed needs a separate server, because a server fault would affect all seeds
	// on that server. The function Parallel returns the value of the flag -system.parallel.
	Parallel int

	// MinWrites and MinTakeovers are the minimum numbers of accepted writes and of ownership
	// changes. A run continues, up to a limit, until it reaches these numbers. A run that does not
	// reach them proves nothing, so it fails. The defaults are 1000 and 5.
	MinWrites, MinTakeovers int

	// Control removes the fence. No shipped package contains the backend decorator that does this.
	// If fewer than 19 of 20 runs show damage, Run fails. The flag -system.control sets Control.
	Control bool
}

// Store is an empty namespace for one run, with functions that cause faults in its store. If a
// function is nil, the schedules omit its fault.
type Store struct {
	// Options are the opener's settings, with which another process reaches the store. The value
	// must be one that encoding/json can write and read back, such as the backend's settings or a
	// map. No output contains the settings.
	Options any

	// Restart stops the store and starts it again with its data. Restart returns when the store
	// answers.
	Restart func(ctx context.Context) error
	// Pause keeps the store from answering writes until resume is called, exactly once. A pause
	// must not cause evictions (C5).
	Pause func(ctx context.Context) (resume func() error, err error)
	// Cut cuts the members' connections until heal is called, exactly once. A cut must not cause
	// evictions (C5).
	Cut func(ctx context.Context) (heal func() error, err error)
}

const (
	minMembers = 3
	maxMembers = 8
	minSteps   = 4
)

// withDefaults returns a copy of c with the defaults filled in. If c is invalid, withDefaults
// returns an error that explains what to change.
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

// open opens a backend with options in JSON.
func open(ctx context.Context, o driver.Opener, options json.RawMessage) (driver.Backend, error) {
	b, err := o.Open(ctx, func(into any) error { return json.Unmarshal(options, into) })
	if err != nil {
		return nil, fmt.Errorf("tenure: system: open %s: %w", o.Name, err)
	}
	return b, nil
}
