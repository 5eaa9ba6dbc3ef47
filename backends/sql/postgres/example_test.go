package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/core"
)

// The leader pays in its own transaction, which the fence refuses once the lease has ended.
func ExampleBackend_FenceTx() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dsn := os.Getenv("POSTGRES_DSN")                        // such as postgres://app@db.example/app?sslmode=verify-full
	if err := postgres.Migrate(ctx, dsn, nil); err != nil { // once per release, by the tables' owner
		log.Fatal(err)
	}
	b, err := postgres.Open(ctx, dsn, "example", &postgres.Options{Create: true}) // the first time only
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE payments (invoice INT)"); err != nil {
		log.Fatal(err)
	}

	pay := func(fence core.Fence) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing after a commit
		if err := b.FenceTx(ctx, tx, fence); err != nil {
			return err // matches core.ErrFenced
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES ($1)", 42); err != nil {
			return err
		}
		return tx.Commit()
	}
	var fence core.Fence
	err = core.RunSingleton(ctx, b, "payments", func(_ context.Context, lease *core.Lease) error {
		fence = lease.Fence()
		return pay(fence)
	}, nil)
	fmt.Println("as leader:", err)
	fmt.Println("afterwards fenced:", errors.Is(pay(fence), core.ErrFenced))
	// Output:
	// as leader: <nil>
	// afterwards fenced: true
}
