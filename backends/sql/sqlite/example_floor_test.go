package sqlite_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
)

// After a restore from a backup, an operator raises the floor above the highest token that a log or
// a metric shows. Every SQL backend has these methods.
func ExampleBackend_RaiseFloor() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	b, err := sqlite.Open(ctx, filepath.Join(dir, "tenure.db"), "orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()

	const highest = 5000 // the highest token seen before the restore
	floor, err := b.Floor(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := b.RaiseFloor(ctx, floor, highest); err != nil {
		log.Fatal(err)
	}
	err = core.RunSingleton(ctx, b, "invoices", func(_ context.Context, lease *core.Lease) error {
		fmt.Println("the next token is greater:", lease.Token() > highest)
		return nil
	}, nil)
	fmt.Println("error:", err)
	// Output:
	// the next token is greater: true
	// error: <nil>
}
