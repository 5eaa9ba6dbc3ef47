package tenureprom_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/observe/tenureprom"
)

func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	backend, err := memory.Open(ctx, memory.New(), "orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	metrics := tenureprom.New(nil)
	e, err := core.NewElector(backend, &core.Options{
		Hooks: metrics.Hooks(), LockDir: "none", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	metrics.Watch(e)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	err = e.Contend(func(context.Context, *core.Lease) error {
		stop()
		return nil
	}, "invoices")
	if err != nil {
		log.Fatal(err)
	}
	_ = e.Run(ctx) // Run ends with the context
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tenure_leases_granted_total" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	// Output:
	// tenure_leases_granted_total 1
}
