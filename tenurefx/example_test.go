package tenurefx_test

import (
	"context"
	"fmt"
	"log"

	"go.uber.org/fx"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/tenurefx"
)

// The whole application: a configuration, the backends that it may choose, and a leader.
func Example() {
	c, err := config.Load(&config.LoadOptions{
		Path: "app.yaml", Data: []byte("tenure: {backends: {memory: {namespace: shop}}}"), Environ: []string{},
	})
	if err != nil {
		log.Fatal(err)
	}
	led := make(chan string, 1)
	app := fx.New(
		fx.NopLogger,
		fx.Supply(c),
		tenurefx.Backends(memory.Opener()),
		tenurefx.Module(),
		fx.Provide(tenurefx.AsElection(func() tenurefx.Election {
			return tenurefx.Election{Shards: []string{"report"}, Handler: func(ctx context.Context, lease *core.Lease) error {
				led <- lease.Shard()
				<-ctx.Done() // until the application stops
				return nil
			}}
		})),
	)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("leads", <-led)
	fmt.Println("stopped:", app.Stop(ctx))
	// Output:
	// leads report
	// stopped: <nil>
}
