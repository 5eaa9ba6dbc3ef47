package tenurefx

import (
	"log/slog"
	"time"

	"go.uber.org/fx"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/errtext"
	"github.com/tenure-go/tenure/sharding"
)

// ShardingSettings are the keys below sharding in the configuration. See
// sharding.Options.
type ShardingSettings struct {
	Shards      []string          `yaml:"shards"`   // names and ranges; or keyspace
	Keyspace    sharding.Keyspace `yaml:"keyspace"` // its shards are served beside shards
	Interval    time.Duration     `yaml:"interval"`
	LeaveBudget time.Duration     `yaml:"leave_budget"` // default: half of stop_timeout
	Cooldown    time.Duration     `yaml:"cooldown"`
	Penalty     time.Duration     `yaml:"penalty"`
	Poll        time.Duration     `yaml:"poll"`
	ZoneKey     string            `yaml:"zone_key"`
	Capacity    float64           `yaml:"capacity"`
}

// ShardHandler serves each shard that sharding gives to this process. An
// application provides one.
type ShardHandler core.Handler

// managerParams are the inputs of newManager.
type managerParams struct {
	fx.In

	Backend core.Backend
	Elector *core.Elector
	Handler ShardHandler
	Config  *config.Config `optional:"true"`
	// Options, if there are any, are used instead of those of Config, but for an empty
	// Shards and an empty Keyspace.
	Options *sharding.Options `optional:"true"`
	Logger  *slog.Logger      `optional:"true"`
}

// managerResult is a Manager and a Router that knows its keyspace.
type managerResult struct {
	fx.Out

	Manager *sharding.Manager
	Router  *sharding.Router
}

// newManager returns a Manager and a Router. The caller runs the Manager.
func newManager(p managerParams) (managerResult, error) {
	var s ShardingSettings
	if p.Config != nil {
		if err := p.Config.Section("sharding", &s); err != nil {
			return managerResult{}, err
		}
	}
	o := &sharding.Options{
		Interval: s.Interval, LeaveBudget: s.LeaveBudget, Cooldown: s.Cooldown,
		Penalty: s.Penalty, Poll: s.Poll, ZoneKey: s.ZoneKey, Capacity: s.Capacity,
	}
	if s.LeaveBudget == 0 && p.Config != nil {
		o.LeaveBudget = p.Config.StopTimeout() / 2 // the rest is for the Elector
	}
	if p.Options != nil {
		c := *p.Options
		o = &c
	}
	if len(o.Shards) == 0 {
		o.Shards = append(o.Shards, s.Shards...)
	}
	if o.Keyspace == (sharding.Keyspace{}) && s.Keyspace != (sharding.Keyspace{}) {
		if err := s.Keyspace.Validate(); err != nil {
			return managerResult{}, errtext.Errorf("tenure: sharding.keyspace: %w", err)
		}
		o.Keyspace = s.Keyspace
	}
	if o.OnError == nil && p.Logger != nil {
		o.OnError = func(err error) { p.Logger.Warn("tenure: sharding", "error", err) }
	}
	m, err := sharding.NewManager(p.Backend, p.Elector, core.Handler(p.Handler), o)
	if err != nil && p.Options == nil {
		err = errtext.InKeys(err, s)
	}
	if err != nil {
		return managerResult{}, err
	}
	r, err := sharding.NewRouter(p.Elector, m)
	return managerResult{Manager: m, Router: r}, err
}

// Sharding provides the *sharding.Manager and the *sharding.Router, and runs the
// Manager beside the Elector of Module: when the application stops, this member is
// emptied first.
func Sharding() fx.Option {
	return fx.Module("tenure-sharding",
		fx.Provide(func(lc fx.Lifecycle, sd fx.Shutdowner, p managerParams) (managerResult, error) {
			r, err := newManager(p)
			if err != nil {
				return managerResult{}, errtext.Errorf("tenure: sharding: %w", err)
			}
			// Appended after the Elector's, so it stops before it.
			lc.Append(hook("sharding manager", r.Manager.Run, sd))
			return r, nil
		}),
		fx.Invoke(func(*sharding.Manager) {}),
	)
}
