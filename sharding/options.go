package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/mark"
)

// Options say how shards are shared. All members of a namespace should have the
// same.
type Options struct {
	// Shards is the shard set: names, and ranges of numbers such as "orders-0000..1023". It
	// has at most MaxShards. Required, unless there is a Keyspace. See Expand.
	Shards []string
	// Keyspace divides keys among shards of its own, which are served beside Shards. Default:
	// none.
	Keyspace Keyspace
	// Assigner decides who owns what. Default: Balance{}.
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
	// Prepare makes a shard ready that comes to this member by a plan, such as by filling a
	// cache, while its owner goes on. The owner hands it over when Prepare has returned, or after
	// PrepareBudget, even if Prepare failed. If Prepare has not returned by then, ctx ends; else
	// ctx ends when this member owns the shard, or is not to get it any more, so that Prepare can
	// leave a goroutine that follows the shard until the handler begins. A takeover after a crash
	// is prepared only with Standby. Default: none.
	Prepare func(ctx context.Context, shard string) error
	// PrepareBudget bounds Prepare. Default 10 s. All members should have the same.
	PrepareBudget time.Duration
	// PrepareRequired: a shard for which Prepare fails or takes too long stays with its owner, and
	// the assigner gives it to another member, or to this one again after Penalty. A shard without
	// an owner comes all the same, and so does one whose owner has been leaving for half of its
	// LeaveBudget. Default: false.
	PrepareRequired bool
	// PrepareAtOnce is how many shards are prepared at a time. Default 4.
	PrepareAtOnce int
	// Standby with 1 has Prepare called on the heir of each shard, too, so that a crash finds a
	// successor that is prepared. Default 0.
	Standby int
	// Capacity is how much load this member can take a second, in the unit of Slice.Add. Default
	// 0: as its weight says.
	Capacity float64
	// Quarantine says when nobody is to own a shard, because its owners die.
	Quarantine Quarantine
	// Poll is how often the assigner's log is read, for namespaces whose shards write
	// much. Default 0: the logs of the whole namespace are followed instead, so that news
	// comes at once. With it, Manager.Wake brings news without waiting, in programs.
	Poll time.Duration
	// ZoneKey is the key of core.Options.Meta that holds a member's zone. Default
	// "zone".
	ZoneKey string
	// Takes says which of the members that run a Manager own shards. Default: all. Others, such
	// as processes that take a lock or call core.RunOnce, own none.
	Takes func(core.Member) bool
	// Loads tells the load of shards by name, on the member that plans, before each
	// plan. It has Interval to answer; when it fails the plan uses what it told
	// last. For a missing shard the owner's report counts (Slice.Add, Counter), if there is one.
	// Default: the owners' reports.
	Loads func(ctx context.Context) (map[string]float64, error)

	// OnPlan is told of every plan that this member wrote, from the assigner's
	// goroutine, which it must not hold up.
	OnPlan func(*Outcome)
	// OnRange is told, on every member, of the splits and merges that each plan begins or ends, as
	// the member reads it; not of those from before it read the plans first. From one goroutine,
	// which it must not hold up.
	OnRange func([]RangeEvent)
	// OnError is called when something failed that is tried again: the log could not be read,
	// or not understood; Loads failed. It gets the first failure of a kind, one after 1, 5 and
	// 15 minutes, and then every 15; the end is a line at Info to slog.Default. It is called from
	// various goroutines. Default: a line at Warn to slog.Default.
	OnError func(error)
}

// resolve returns a copy with the defaults filled in, and the names of the shards.
func (o *Options) resolve() (*Options, []string, error) {
	var c Options
	if o != nil {
		c = *o
	}
	names, err := c.set()
	if err != nil {
		return nil, nil, err
	}
	c.Shards = append([]string(nil), c.Shards...)
	if c.Assigner == nil {
		c.Assigner = Balance{}
	}
	for _, d := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{
		{"Interval", &c.Interval, time.Second}, {"LeaveBudget", &c.LeaveBudget, 30 * time.Second},
		{"Cooldown", &c.Cooldown, 0}, {"Poll", &c.Poll, 0}, {"PrepareBudget", &c.PrepareBudget, 10 * time.Second},
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
	if c.PrepareAtOnce == 0 {
		c.PrepareAtOnce = 4
	}
	if c.PrepareAtOnce < 0 || c.Standby < 0 || c.Standby > 1 || c.Standby > 0 && c.Prepare == nil {
		return nil, nil, optErr("PrepareAtOnce %d, Standby %d: use at least 1, and 0 or 1; Standby needs Prepare", c.PrepareAtOnce, c.Standby)
	}
	if c.Capacity < 0 || math.IsNaN(c.Capacity) || math.IsInf(c.Capacity, 0) {
		return nil, nil, optErr("Capacity %v: use a number above 0, or leave it out", c.Capacity)
	}
	if c.Penalty < 0 {
		return nil, nil, optErr("Penalty %v is negative: leave it 0 for its default", c.Penalty)
	}
	if c.Penalty == 0 {
		c.Penalty = 2 * c.Interval
	}
	if c.Quarantine, err = c.Quarantine.resolve(); err != nil {
		return nil, nil, err
	}
	if c.ZoneKey == "" {
		c.ZoneKey = "zone"
	}
	takes := c.Takes
	c.Takes = func(m core.Member) bool { return m.Meta[mark.Key] != "" && (takes == nil || takes(m)) }
	if c.OnError == nil {
		c.OnError = func(err error) { slog.Warn("tenure: sharding: trying again", slog.Any("error", err)) }
	}
	return &c, names, nil
}

// set checks the set of shards, and returns the names of those that are not the keyspace's.
func (o *Options) set() (names []string, err error) {
	keyed := o.Keyspace != Keyspace{}
	if len(o.Shards) == 0 && !keyed {
		return nil, optErr("Shards is empty: name the shard set, such as orders-0000..1023, or give a Keyspace")
	}
	if keyed {
		if err := o.Keyspace.Validate(); err != nil {
			return nil, err
		}
	}
	if len(o.Shards) > maxSpecs {
		return nil, optErr("Shards has %d names and ranges, at most %d: write ranges", len(o.Shards), maxSpecs)
	}
	if len(o.Shards) > 0 {
		if names, err = Expand(o.Shards...); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		if _, err := o.Keyspace.index(name); keyed && err == nil {
			return nil, optErr("shard %.60q is one of the keyspace %q: leave it out of Shards", name, o.Keyspace.Name)
		}
	}
	return names, nil
}

func optErr(format string, args ...any) error {
	return fmt.Errorf("tenure: %w sharding options: %s", core.ErrInvalid, fmt.Sprintf(format, args...))
}
