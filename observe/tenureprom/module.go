package tenureprom

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/tenure-go/tenure/core"
)

// provided is what the application, or package tenurefx, provides.
type provided struct {
	fx.In

	Elector    *core.Elector
	Metrics    *Metrics
	Registerer prometheus.Registerer `optional:"true"`
}

// hooks are among those that package tenurefx gives the Elector.
type hooks struct {
	fx.Out

	Hooks core.Hooks `group:"tenure.hooks"`
}

// Module is for an application that is wired with package tenurefx. It provides
// *Metrics, and shows the application's *core.Elector with them from start to stop. They
// are registered with the application's prometheus.Registerer, or with Prometheus' default
// one if it provides none. A name that is registered already fails the start: give
// Options.Labels where a process has several Electors. Nil options work.
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
