package tenurefx_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/observe/tenureprom"
	"github.com/tenure-go/tenure/tenurefx"
)

// The application's registry contains the metrics of its member while the application runs.
func Example_prometheus() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := config.Load(&config.LoadOptions{
		Path: "app.yaml", Data: []byte("tenure: {backends: {memory: {namespace: shop}}}"), Environ: []string{},
	})
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	app := fx.New(
		fx.NopLogger,
		fx.Supply(c),
		fx.Provide(func() prometheus.Registerer { return registry }),
		tenurefx.Backends(memory.Opener()),
		tenurefx.Module(),
		tenureprom.Module(nil),
	)
	has := func(name string) bool {
		families, err := registry.Gather()
		if err != nil {
			log.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				return true
			}
		}
		return false
	}
	if err := app.Start(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("started:", has("tenure_member_joined"))
	if err := app.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("stopped:", has("tenure_member_joined"))
	// Output:
	// started: true
	// stopped: false
}
