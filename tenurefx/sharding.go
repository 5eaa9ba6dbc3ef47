package tenurefx

import (
	"cmp"
	"log/slog"

	"go.uber.org/fx"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/errtext"
	"github.com/tenure-go/tenure/sharding"
)

// ShardHandler serves each shard that sharding assigns to this process. An application provides one
// ShardHandler.
type ShardHandler core.Handler

type managerParams struct {
	fx.In

	Backend core.Backend
	Elector *core.Elector
	Handler ShardHandler
	Config  *config.Config `optional:"true"`
	// Options contains the application's options, which values in the configuration override.
	Options *sharding.Options `optional:"true"`
	Logger  *slog.Logger      `optional:"true"`
}

type managerResult struct {
	fx.Out

	Manager *sharding.Manager
	Router  *sharding.Router
}

func newManager(p managerParams) (managerResult, error) {
	var o sharding.Options
	if p.Options != nil {
		o = *p.Options
	}
	if p.Config != nil {
		if err := p.Config.Section("sharding", &o); err != nil {
			return managerResult{}, err
		}
		o.LeaveBudget = cmp.Or(o.LeaveBudget, p.Config.StopTimeout()/2) // the rest of the time is for the Elector
	}
	if o.Logger == nil {
		o.Logger = p.Logger
	}
	m, err := sharding.NewManager(p.Backend, p.Elector, core.Handler(p.Handler), &o)
	if err != nil {
		return managerResult{}, errtext.InKeys(err, o)
	}
	r, err := sharding.NewRouter(p.Elector, m)
	return managerResult{Manager: m, Router: r}, err
}

// Sharding provides the *sharding.Manager and the *sharding.Router. Sharding runs the Manager
// alongside the Elector of Module. When the application stops, the Manager hands this member's
// shards to other members before the Elector stops.
func Sharding() fx.Option {
	return fx.Module("tenure-sharding",
		fx.Provide(func(lc fx.Lifecycle, sd fx.Shutdowner, p managerParams) (managerResult, error) {
			r, err := newManager(p)
			if err != nil {
				return managerResult{}, errtext.Errorf("tenure: sharding: %w", err)
			}
			// The module appends this hook after the Elector's hook, so the Manager stops first.
			lc.Append(hook("sharding manager", r.Manager.Run, sd))
			return r, nil
		}),
		fx.Invoke(func(*sharding.Manager) {}),
	)
}
