package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

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
			return err // matches core.ErrLost
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
	fmt.Println("afterwards fenced:", errors.Is(pay(fence), core.ErrLost))
	// Output:
	// as leader: <nil>
	// afterwards fenced: true
}

// The leader writes a report for each day. It inserts the day with the report, in one transaction
// that the fence refuses once the lease has ended. A new leader first reads the last day.
func ExampleBackend_FencePgx() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dsn := os.Getenv("POSTGRES_DSN")
	if err := postgres.Migrate(ctx, dsn, nil); err != nil {
		log.Fatal(err)
	}
	b, err := postgres.Open(ctx, dsn, "reports", &postgres.Options{Create: true})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE TABLE reports (day DATE PRIMARY KEY, text TEXT NOT NULL)"); err != nil {
		log.Fatal(err)
	}

	report := func(lease *core.Lease, day time.Time) error {
		var made bool
		if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM reports WHERE day = $1)", day).Scan(&made); err != nil || made {
			return err // perhaps by another leader
		}
		text := "all is well"
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := b.FencePgx(ctx, tx, lease.Fence()); err != nil {
				return err // matches core.ErrLost if the lease is over
			}
			_, err := tx.Exec(ctx, "INSERT INTO reports VALUES ($1, $2)", day, text)
			return err
		})
	}
	monday := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	var former *core.Lease
	for range 2 { // the second leader finds Monday's
		err := core.RunSingleton(ctx, b, "report", func(_ context.Context, lease *core.Lease) error {
			former = lease
			return report(lease, monday)
		}, nil)
		if err != nil {
			log.Fatal(err)
		}
	}
	err = report(former, monday.AddDate(0, 0, 1))
	fmt.Println("a former leader was refused:", errors.Is(err, core.ErrLost))
	var reports int
	if err := conn.QueryRow(ctx, "SELECT count(*) FROM reports").Scan(&reports); err != nil {
		log.Fatal(err)
	}
	fmt.Println("reports:", reports)
	// Output:
	// a former leader was refused: true
	// reports: 1
}
