package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core/driver"
)

// The example writes its own table in the data file only under the shard's current lease, because
// it checks the fence in the same transaction.
func ExampleBackend_FenceTx() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	b, err := sqlite.Open(ctx, filepath.Join(dir, "bank.db"), "bank", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()

	// Applications get a fence from their lease. This example claims it by hand.
	s, err := b.Join(ctx, driver.Member{Session: "s1", Node: "n1", TTL: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	granted, err := s.Acquire(ctx, []driver.Claim{{Shard: "accounts"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fence := granted[0].Fence

	deposit := func(amount int) error {
		tx, err := b.BeginTx(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := b.FenceTx(ctx, tx, fence); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS deposits (amount INTEGER)"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO deposits VALUES (?)", amount); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println("as leader:", deposit(10))
	if err := s.Release(ctx, []driver.Fence{fence}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("afterwards fenced:", errors.Is(deposit(20), driver.ErrLost))
	// Output:
	// as leader: <nil>
	// afterwards fenced: true
}
