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
)

// Options say how shards are shared. All members of a namespace should have the same Options. The
// fields that have a key can be set in the configuration below sharding: config.Config.Section
// reads them.
type Options struct {
	// Shards is the shard set: names, and ranges of numbers such as "orders-0000..1023". It has at
	// most 199,999. Required if there is no Keyspace.
	Shards []string `yaml:"shards"`
	// Keyspace divides keys among its own shards, which are served beside Shards. Default: none.
	Keyspace Keyspace `yaml:"keyspace"`
	// Elector configures the Elector that Run makes. NewManager does not use it. If it has no
	// Logger, the Elector uses the Logger below.
	Elector *core.Options `yaml:"-"`
	// Balance sets up the default assigner. If Assigner is set, leave it out.
	Balance Balance `yaml:"balance"`
	// Assigner decides which member owns each shard. Default: Balance.
	Assigner Assigner `yaml:"-"`
	// Interval is the shortest time between two plans; a member that joins gets its share within
	// it. Default 1 s, at least 1 ms. If core.Options.Watchdog is set, use at most a third of it,
	// since the assigner reports progress once an Interval.
	Interval time.Duration `yaml:"interval"`
	// LeaveBudget limits the time that Run takes, after its context ended, to have its shards taken
	// over. Default 30 s, with tenurefx half of stop_timeout. Make it longer than core's DrainBudget; otherwise one slow handler uses
	// it up.
	LeaveBudget time.Duration `yaml:"leave_budget"`
	// Cooldown is the time after a move in which a shard is not moved again to balance the members.
	// Default 0: none.
	Cooldown time.Duration `yaml:"cooldown"`
	// Penalty is the time for which a member whose handler gave up a shard gets no shard. It
	// doubles each time, up to 64 times its value. Default 2 Interval.
	Penalty time.Duration `yaml:"penalty"`
	// Prepare makes ready a shard that a plan gives to this member, for example by filling a cache,
	// while its owner continues. The owner hands the shard over when Prepare has returned, even if
	// it failed, or after PrepareBudget. If Prepare has not returned by then, ctx ends. Otherwise,
	// ctx ends when this member owns the shard, or no longer expects it. A goroutine that Prepare
	// starts can therefore follow the shard until the handler begins. A takeover after a crash is
	// prepared only with Standby. Default: none.
	Prepare func(ctx context.Context, shard string) error `yaml:"-"`
	// PrepareBudget limits Prepare. Default 10 s. All members should have the same.
	PrepareBudget time.Duration `yaml:"prepare_budget"`
	// PrepareRequired keeps a shard with its owner if Prepare fails or takes too long. The assigner
	// gives it to another member, or to this one again after Penalty. A shard moves regardless if
	// it has no owner, or if its owner has been leaving for half of its LeaveBudget. Default:
	// false.
	PrepareRequired bool `yaml:"prepare_required"`
	// PrepareAtOnce is the number of shards that are prepared at a time. Default 4.
	PrepareAtOnce int `yaml:"prepare_at_once"`
	// Standby set to 1 calls Prepare on the heir of each shard, too, so that the heir is prepared
	// when the owner crashes. Default 0.
	Standby int `yaml:"standby"`
	// Capacity is the load a second that this member can take, in the unit of Slice.Add. Default 0:
	// derived from the member's weight.
	Capacity float64 `yaml:"capacity"`
	// Quarantine says when no member may own a shard, because its owners die.
	Quarantine Quarantine `yaml:"quarantine"`
	// Poll is the time between two reads of the assigner's log, for namespaces whose shards write
	// much. Default 0: the Manager follows the logs of the
	// whole namespace, and learns of each plan immediately.
	Poll time.Duration `yaml:"poll"`
	// ZoneKey is the key of core.Options.Meta that holds a member's zone. Default
	// "zone".
	ZoneKey string `yaml:"zone_key"`
	// Takes reports whether a member that runs a Manager may own shards. Default: true for all.
	// Use it to exclude processes that only take a lock or call core.RunOnce.
	Takes func(core.Member) bool `yaml:"-"`
	// Loads returns the load of shards by name. The assigner's member calls it before each plan. It
	// has Interval to answer; if it fails, the plan uses its last answer. If the answer lacks a
	// shard, the owner's report (Slice.Add, Manager.Add) counts for it, if there is one. Default:
	// the owners' reports.
	Loads func(ctx context.Context) (map[string]float64, error) `yaml:"-"`

	// OnPlan gets every plan that this member writes. The assigner's goroutine calls it, so it
	// must return quickly.
	OnPlan func(*Outcome) `yaml:"-"`
	// OnRange gets, on every member, the splits and merges that each plan begins or ends, as the
	// member reads it. It gets none that are older than the member's first read of the plans. One
	// goroutine calls it, so it must return quickly.
	OnRange func([]RangeEvent) `yaml:"-"`
	// Logger gets at Warn the first failure of a call that the Manager repeats, one after 1, 5 and
	// 15 minutes, and one every 15 minutes afterwards. At Info, it gets their end. At Warn, it
	// gets the beginning and the end of a quarantine. Default: slog.Default at the call of
	// NewManager.
	Logger *slog.Logger `yaml:"-"`
}

// resolve returns a copy with the defaults filled in, and the names of the shards that are not the
// keyspace's.
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
	if b, ok := c.Assigner.(Balance); ok {
		if err := b.check(); err != nil {
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

// set checks the set of shards, and returns the names of the shards that are not the keyspace's.
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
