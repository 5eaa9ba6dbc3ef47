package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Options say how shards are shared. All members of a namespace should have the
// same.
type Options struct {
	// Shards is the shard set: names, and ranges such as "orders-0000..1023". It has
	// at most MaxShards. Required. See Expand.
	Shards []string
	// Assigner decides who owns what. Default: Minimal{}.
	Assigner Assigner
	// Interval is how often a plan is made at most; a member that joins gets its
	// share within it. Default 1 s, at least 1 ms; where core.Options.Watchdog is
	// set, at most a third of that, since the assigner reports progress that often.
	Interval time.Duration
	// LeaveBudget is how long Run takes at most to have its shards taken over when
	// its context ended. Default 30 s; more than core's DrainBudget, or one slow
	// handler uses it up.
	LeaveBudget time.Duration
	// Cooldown is how long a shard that was moved is not moved again for balance's
	// sake. Default 0: none.
	Cooldown time.Duration
	// Penalty is how long a member whose handler gave up a shard is given nothing;
	// it doubles up to 64 times that. Default 2 Interval.
	Penalty time.Duration
	// Poll is how often the assigner's log is read, for namespaces whose shards write
	// much. Default 0: the logs of the whole namespace are followed instead, so that news
	// comes at once. With it, Manager.Wake brings news without waiting, in programs.
	Poll time.Duration
	// ZoneKey is the key of core.Options.Meta that holds a member's zone. Default
	// "zone".
	ZoneKey string
	// Takes says which members of the namespace own shards. Default: all, so
	// processes that run an Elector without a Manager need another namespace, or
	// this.
	Takes func(core.Member) bool
	// Loads tells the load of shards by name, on the member that plans, before each
	// plan. It has Interval to answer; when it fails the plan uses what it told
	// last. A shard that is missing has the mean. For LoadAware.
	Loads func(ctx context.Context) (map[string]float64, error)

	// OnPlan is told of every plan that this member wrote, from the assigner's
	// goroutine, which it must not hold up.
	OnPlan func(*Outcome)
	// OnError is told what went wrong and is tried again: the log could not be read,
	// or not understood; Loads failed. From various goroutines. Default: a line at Warn
	// to slog.Default.
	OnError func(error)
}

// resolve returns a copy with the defaults filled in, and the names of the shards.
func (o *Options) resolve() (*Options, []string, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if len(c.Shards) == 0 {
		return nil, nil, optErr("Shards is empty: name the shard set, such as orders-0000..1023")
	}
	if len(c.Shards) > maxSpecs {
		return nil, nil, optErr("Shards has %d names and ranges, at most %d: write ranges", len(c.Shards), maxSpecs)
	}
	names, err := Expand(c.Shards...)
	if err != nil {
		return nil, nil, err
	}
	c.Shards = append([]string(nil), c.Shards...)
	if c.Assigner == nil {
		c.Assigner = Minimal{}
	}
	for _, d := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{
		{"Interval", &c.Interval, time.Second}, {"LeaveBudget", &c.LeaveBudget, 30 * time.Second},
		{"Cooldown", &c.Cooldown, 0}, {"Poll", &c.Poll, 0},
	} {
		if *d.v < 0 {
			return nil, nil, optErr("%s %v is negative: leave it 0 for its default", d.name, *d.v)
		}
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.Interval < time.Millisecond {
		return nil, nil, optErr("Interval %v is below 1ms: raise it", c.Interval)
	}
	if c.Penalty < 0 {
		return nil, nil, optErr("Penalty %v is negative: leave it 0 for its default", c.Penalty)
	}
	if c.Penalty == 0 {
		c.Penalty = 2 * c.Interval
	}
	if c.ZoneKey == "" {
		c.ZoneKey = "zone"
	}
	if c.OnError == nil {
		c.OnError = func(err error) { slog.Warn("tenure: sharding: trying again", slog.Any("error", err)) }
	}
	return &c, names, nil
}

func optErr(format string, args ...any) error {
	return fmt.Errorf("tenure: %w sharding options: %s", core.ErrInvalid, fmt.Sprintf(format, args...))
}
