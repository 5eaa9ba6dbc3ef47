package sharding

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/sharding/assign"
)

// Options configure a Manager. All members of a namespace should have the same Options. The
// configuration's section "sharding" (config.Config.Section) can set the fields that have a yaml
// key.
type Options struct {
	// Shards is the set of shards: names, and ranges of numbers such as "orders-0000..1023". Shards
	// may contain at most 199,999 shards. Shards is required if there is no Keyspace.
	Shards []string `yaml:"shards"`
	// Keyspace divides keys among additional shards, which members serve along with Shards.
	// Default: none.
	Keyspace Keyspace `yaml:"keyspace"`
	// Elector configures the Elector that Run creates. NewManager does not use this field. If
	// Elector has no Logger, the Elector uses the Logger below.
	Elector *core.Options `yaml:"-"`
	// Balance configures the default assigner. If Assigner is set, do not set Balance.
	Balance assign.Balance `yaml:"balance"`
	// Assigner decides which member owns each shard. The default is Balance.
	Assigner assign.Assigner `yaml:"-"`
	// Interval is the minimum time between plans. A new member gets its share within Interval. The
	// default is 1 s, and the minimum is 1 ms. If core.Options.Watchdog is set, Interval should be
	// at most a third of Watchdog, because the assigner reports progress once per Interval.
	Interval time.Duration `yaml:"interval"`
	// LeaveBudget limits how long Run waits, after its context has ended, for other members to take
	// over its shards. The default is 30 s or, with tenurefx, half of stop_timeout. LeaveBudget
	// should exceed core.Options.DrainBudget, because one slow handler could otherwise use up
	// LeaveBudget.
	LeaveBudget time.Duration `yaml:"leave_budget"`
	// Cooldown is the time after a move during which the assigner does not move the shard again to
	// balance the members. By default (0), there is no cooldown.
	Cooldown time.Duration `yaml:"cooldown"`
	// Penalty is how long a member gets no shard after its handler gave up a shard. The time
	// doubles with each repetition, up to 64 times Penalty. The default is twice Interval.
	Penalty time.Duration `yaml:"penalty"`
	// Prepare prepares this member for a shard that a plan assigns to it, for example by filling a
	// cache. While Prepare runs, the current owner continues to serve the shard. The owner hands
	// the shard over when Prepare has returned, even if Prepare failed, or after PrepareBudget. If
	// Prepare has not returned when the owner hands the shard over, ctx ends. If Prepare has
	// returned, ctx ends when this member owns the shard or no longer expects it. A goroutine that
	// Prepare starts can therefore follow the shard until the handler begins. To prepare for
	// takeovers after a crash as well, set Standby. By default, members do not prepare for shards.
	Prepare func(ctx context.Context, shard string) error `yaml:"-"`
	// PrepareBudget is the time limit for Prepare. The default is 10 s. All members should have the
	// same PrepareBudget.
	PrepareBudget time.Duration `yaml:"prepare_budget"`
	// PrepareRequired keeps a shard with its owner if Prepare fails or takes too long. The assigner
	// then assigns the shard to another member, or to this member again after Penalty. A shard
	// moves despite PrepareRequired if the shard has no owner, or if its owner has been leaving for
	// half of the owner's LeaveBudget. Default: false.
	PrepareRequired bool `yaml:"prepare_required"`
	// PrepareAtOnce is the maximum number of shards that this member prepares concurrently. The
	// default is 4.
	PrepareAtOnce int `yaml:"prepare_at_once"`
	// If Standby is 1, each shard's heir also calls Prepare, in case the owner crashes. The default
	// is 0.
	Standby int `yaml:"standby"`
	// Capacity is this member's maximum load per second, in the unit of Slice.Add. By default (0),
	// the assigner derives the capacity from the member's weight.
	Capacity float64 `yaml:"capacity"`
	// Quarantine configures when, and for how long, members do not claim a shard whose owners keep
	// dying.
	Quarantine Quarantine `yaml:"quarantine"`
	// Poll is the interval at which this member reads the assigner's log. Set Poll in namespaces
	// whose shards write many log entries. By default (0), the Manager follows the logs of the
	// whole namespace, and learns of each plan immediately.
	Poll time.Duration `yaml:"poll"`
	// ZoneKey is the key of a member's zone in core.Options.Meta. The default is "zone".
	ZoneKey string `yaml:"zone_key"`
	// Takes reports whether a member that runs a Manager may own shards. By default, all of these
	// members may own shards. Members without a Manager never get shards.
	Takes func(core.Member) bool `yaml:"-"`
	// Loads returns the load of shards by name. The assigner calls Loads before each plan, with a
	// time-out of Interval. If the call fails, the plan uses the result of the last successful
	// call. If the result lacks a shard, the plan uses the owner's report (Slice.Add, Manager.Add),
	// if there is one. By default, plans use the owners' reports.
	Loads func(ctx context.Context) (map[string]float64, error) `yaml:"-"`

	// OnPlan is called, in the assigner's goroutine, with every plan that this member writes.
	// OnPlan must return quickly.
	OnPlan func(*Outcome) `yaml:"-"`
	// OnRange is called when this member reads a plan, with the splits and merges that the plan
	// begins or ends. Changes before this member first reads the plans are omitted. A single
	// goroutine calls OnRange, so OnRange must return quickly.
	OnRange func([]RangeEvent) `yaml:"-"`
	// Logger receives the Manager's log lines. If a repeated call keeps failing, the Manager logs
	// the first failure at Warn. It logs further failures after 1, 5 and 15 minutes, and then every
	// 15 minutes. It logs the end of the failures at Info, and the beginning and the end of a
	// quarantine at Warn. The default is the result of slog.Default when NewManager is called.
	Logger *slog.Logger `yaml:"-"`
}

// The names are those of the shards outside the keyspace.
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
	switch {
	case c.Assigner == nil:
		c.Assigner = c.Balance
	case !reflect.ValueOf(c.Balance).IsZero():
		return nil, nil, optErr("Balance has no effect with an Assigner (%T): set one of them", c.Assigner)
	}
	if b, ok := c.Assigner.(assign.Balance); ok {
		if err := b.Validate(); err != nil {
			return nil, nil, err
		}
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
	c.Takes = func(m core.Member) (yes bool) {
		if yes = m.Meta[mark.Key] != ""; yes && takes != nil {
			yes = false
			_ = goexit.Call(func() error { yes = takes(m); return nil })
		}
		return yes
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = goexit.Logger(c.Logger)
	c.OnPlan, c.OnRange = goexit.Told(c.OnPlan), goexit.Told(c.OnRange)
	return &c, names, nil
}

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
		if names, err = keyspace.Expand(o.Shards...); err != nil {
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
