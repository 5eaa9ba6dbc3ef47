package service_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"go.uber.org/fx"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/tenurefx/service"
)

// A service serves its shards from start to stop. Most programs call Run instead of Start and Stop.
func ExampleModule() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "service.yaml")
	text := "tenure: {backends: {sqlite: {path: " + filepath.Join(dir, "t.db") + ", namespace: orders}}, sharding: {shards: [orders-1]}}"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}
	served := make(chan string)
	serve := func(ctx context.Context, lease *core.Lease) error {
		served <- lease.Shard()
		<-ctx.Done() // the shard moves, the process stops, or the lease was lost
		return nil
	}
	app := fx.New(service.Module(file, serve, sqlite.Opener()), fx.Supply(slog.New(slog.DiscardHandler)))
	if err := app.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("serves", <-served)
	fmt.Println("stopped:", app.Stop(context.Background()))
	// Output:
	// serves orders-1
	// stopped: <nil>
}
