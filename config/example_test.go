package config_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
)

// The program supports two backends. The file selects one of them, and the environment overrides
// the file.
func ExampleConfig_Open() {
	dir, err := os.MkdirTemp("", "config")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c, err := config.Load(&config.LoadOptions{
		Path: "app.yaml",
		Data: []byte(`
tenure:
  backend: postgres
  backends:
    postgres: {dsn: "postgres://app@db.example/app?sslmode=verify-full", namespace: orders}
    sqlite: {path: orders.db, namespace: orders}
  ttl: 5s
`),
		Environ: []string{"TENURE__BACKEND=sqlite", "TENURE__BACKENDS__SQLITE__PATH=" + filepath.Join(dir, "orders.db")},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	b, err := c.Open(ctx, sqlite.Opener(), postgres.Opener())
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	err = core.RunSingleton(ctx, b, "report", func(_ context.Context, lease *core.Lease) error {
		fmt.Println("leads", lease.Shard(), "on", b.Info().Backend)
		return nil
	}, c.Options())
	fmt.Println("TTL:", c.Options().TTL, "error:", err)
	// Output:
	// leads report on sqlite
	// TTL: 5s error: <nil>
}

// Mistakes are found before anything is opened.
func ExampleLoad() {
	_, err := config.Load(&config.LoadOptions{
		Path:    "app.yaml",
		Data:    []byte("tenure:\n  ttl: 10\n  drain_bugdet: 5s\n"),
		Environ: []string{},
	})
	fmt.Println(err)
	// Output:
	// tenure: invalid configuration: app.yaml:2: tenure.ttl: "10" has no unit: write 10s or 10ms
	// app.yaml:3: tenure.drain_bugdet: unknown key "drain_bugdet": did you mean "drain_budget"?
}
