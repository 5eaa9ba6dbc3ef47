package tenureprom

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/tenure-go/tenure/core"
)

// The application or package tenurefx provides these values.
type provided struct {
	fx.In

	Elector    *core.Elector
	Metrics    *Metrics
	Registerer prometheus.Registerer `optional:"true"`
}

// Package tenurefx passes this group of hooks to the Elector.
type hooks struct {
	fx.Out

	Hooks core.Hooks `group:"tenure.hooks"`
}

// Module provides *Metrics in an application that uses package tenurefx. The Metrics show the
// application's *core.Elector from start to stop. Module registers the Metrics with the
// application's prometheus.Registerer. Without such a Registerer, Module uses Prometheus' default
// registerer. If a metric's name is already registered, the application fails to start. In a
// process with several Electors, set Options.Labels. Nil options mean the defaults.
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
