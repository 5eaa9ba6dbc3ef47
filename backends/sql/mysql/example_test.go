package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/core"
)

// The leader pays in its own transaction, which the fence refuses once the lease has ended.
func ExampleBackend_FenceTx() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dsn := os.Getenv("MYSQL_DSN")                        // such as app:secret@tcp(db.example:3306)/app?tls=true
	if err := mysql.Migrate(ctx, dsn, nil); err != nil { // once per release, by the tables' owner
		log.Fatal(err)
	}
	b, err := mysql.Open(ctx, dsn, "example", &mysql.Options{Create: true}) // the first time only
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE payments (invoice INT) ENGINE=InnoDB"); err != nil {
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
		if _, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES (?)", 42); err != nil {
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
