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

// ShardingSettings are the keys below sharding in the configuration.
type ShardingSettings = sharding.Settings

// ShardHandler serves each shard that sharding assigns to this process. An application provides
// one.
type ShardHandler core.Handler

type managerParams struct {
	fx.In

	Backend core.Backend
	Elector *core.Elector
	Handler ShardHandler
	Config  *config.Config `optional:"true"`
	// Options, if provided, replaces the options of Config. An empty Shards or Keyspace in it is
	// taken from Config.
	Options *sharding.Options `optional:"true"`
	Logger  *slog.Logger      `optional:"true"`
}

// managerResult is a Manager and the Router of its keyspace.
type managerResult struct {
	fx.Out

	Manager *sharding.Manager
	Router  *sharding.Router
}

func newManager(p managerParams) (managerResult, error) {
	var s sharding.Settings
	var leave time.Duration
	if p.Config != nil {
		if err := p.Config.Section("sharding", &s); err != nil {
			return managerResult{}, err
		}
		leave = p.Config.StopTimeout() / 2 // the rest is for the Elector
	}
	o := s.Options(leave)
	if p.Options != nil {
		c := *p.Options
		if len(c.Shards) == 0 {
			c.Shards = o.Shards
		}
		if c.Keyspace == (sharding.Keyspace{}) {
			c.Keyspace = o.Keyspace
		}
		o = &c
	}
	if o.Keyspace == s.Keyspace && s.Keyspace != (sharding.Keyspace{}) {
		if err := s.Keyspace.Validate(); err != nil {
			return managerResult{}, errtext.Errorf("tenure: sharding.keyspace: %w", err)
		}
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

// Sharding provides the *sharding.Manager and the *sharding.Router. It runs the Manager beside the
// Elector of Module. When the application stops, the Manager empties this member before the Elector
// stops.
func Sharding() fx.Option {
	return fx.Module("tenure-sharding",
		fx.Provide(func(lc fx.Lifecycle, sd fx.Shutdowner, p managerParams) (managerResult, error) {
			r, err := newManager(p)
			if err != nil {
				return managerResult{}, errtext.Errorf("tenure: sharding: %w", err)
			}
			// The hook is appended after the Elector's, so it stops first.
			lc.Append(hook("sharding manager", r.Manager.Run, sd))
			return r, nil
		}),
		fx.Invoke(func(*sharding.Manager) {}),
	)
}
