package tenurefx_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/observe/tenureprom"
	"github.com/tenure-go/tenure/tenurefx"
)

// TestMetricsModule: the metrics exist from start to stop, and the hooks update them.
func TestMetricsModule(t *testing.T) {
	registry := prometheus.NewRegistry()
	serving := make(chan struct{})
	app := fxtest.New(t,
		fx.Provide(
			func() (core.Backend, error) { return memory.Open(t.Context(), memory.New(), "app", nil) },
			func() *core.Options { return &core.Options{Node: "n1", LockDir: "none"} },
			func() prometheus.Registerer { return registry },
			tenurefx.AsElection(func() tenurefx.Election {
				return tenurefx.Election{Shards: []string{"jobs"}, Handler: func(ctx context.Context, _ *core.Lease) error {
					close(serving)
					<-ctx.Done()
					return nil
				}}
			}),
		),
		tenurefx.Module(),
		tenureprom.Module(&tenureprom.Options{PerShard: true}),
	)
	app.RequireStart()
	wait(t, "the grant", serving)
	for _, name := range []string{"tenure_member_joined", "tenure_shard_leader", "tenure_leases_granted_total"} {
		// Hooks run in another goroutine.
		ample.Wait(t, name+" is not 1", func() bool { return value(t, registry, name) == 1 })
	}
	app.RequireStop()
	if families, err := registry.Gather(); err != nil || len(families) > 0 {
		t.Errorf("after the stop there are %d families, %v", len(families), err)
	}
}

// value returns the sum of a metric's series.
func value(t *testing.T, g prometheus.Gatherer, name string) (sum float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestRegisteredTwice: Start fails with the name of the metric that is already registered.
func TestRegisteredTwice(t *testing.T) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(tenureprom.New(nil)); err != nil {
		t.Fatal(err)
	}
	app := fx.New(fx.NopLogger,
		fx.Provide(
			func() (core.Backend, error) { return memory.Open(t.Context(), memory.New(), "app", nil) },
			func() *core.Options { return &core.Options{Node: "n1", LockDir: "none"} },
			func() prometheus.Registerer { return registry },
		),
		tenurefx.Module(),
		tenureprom.Module(nil),
	)
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	if err := app.Start(ctx); err == nil || !strings.Contains(err.Error(), "duplicate metrics collector registration") {
		t.Errorf("the start ended with %v", err)
	}
}
