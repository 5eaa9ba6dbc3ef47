package tenureprom

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/tenure-go/tenure/core"
)

// provided is the input from the application or package tenurefx.
type provided struct {
	fx.In

	Elector    *core.Elector
	Metrics    *Metrics
	Registerer prometheus.Registerer `optional:"true"`
}

// hooks joins the group of hooks that package tenurefx gives the Elector.
type hooks struct {
	fx.Out

	Hooks core.Hooks `group:"tenure.hooks"`
}

// Module is for an application that uses package tenurefx. It provides *Metrics, which show the
// application's *core.Elector from start to stop. It registers them with the application's
// prometheus.Registerer, or with Prometheus' default one. If a name is already registered, the
// start fails. In a process with several Electors, set Options.Labels. Nil options mean the
// defaults.
func Module(o *Options) fx.Option {
	return fx.Module("tenure.prometheus",
		fx.Provide(
			func() *Metrics { return New(o) },
			func(m *Metrics) hooks { return hooks{Hooks: m.Hooks()} },
		),
		fx.Invoke(func(lc fx.Lifecycle, p provided) {
			registerer := p.Registerer
			if registerer == nil {
				registerer = prometheus.DefaultRegisterer
			}
			p.Metrics.Watch(p.Elector)
			lc.Append(fx.Hook{
				OnStart: func(context.Context) error { return registerer.Register(p.Metrics) },
				OnStop: func(context.Context) error {
					registerer.Unregister(p.Metrics)
					return nil
				},
			})
		}),
	)
}
