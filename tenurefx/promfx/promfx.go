// Package promfx adds Tenure's Prometheus metrics to an application that is wired with
// tenurefx. It is a package of its own so that others do not link Prometheus.
package promfx

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/observe/tenureprom"
	"github.com/tenure-go/tenure/tenurefx"
)

// params are what the application may provide.
type params struct {
	fx.In

	Elector    *core.Elector
	Metrics    *tenureprom.Metrics
	Registerer prometheus.Registerer `optional:"true"`
}

// Module provides *tenureprom.Metrics, and shows the application's *core.Elector with them
// from start to stop. They are registered with the application's prometheus.Registerer,
// or with Prometheus' default one if it provides none. A name that is registered already
// fails the start: give Options.Labels where a process has several Electors. Nil options
// work.
func Module(o *tenureprom.Options) fx.Option {
	return fx.Module("tenure.prometheus",
		fx.Provide(
			func() *tenureprom.Metrics { return tenureprom.New(o) },
			tenurefx.AsHooks(func(m *tenureprom.Metrics) core.Hooks { return m.Hooks() }),
		),
		fx.Invoke(func(lc fx.Lifecycle, p params) {
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
