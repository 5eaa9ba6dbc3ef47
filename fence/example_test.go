package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/fence"
)

// leases returns the fences of two leases of one shard, as Lease.Fence does.
func leases() (older, newer driver.Fence) {
	return driver.Fence{Shard: "ledger", Session: "a", Token: 5}, driver.Fence{Shard: "ledger", Session: "b", Token: 6}
}

func ExampleMark_Do() {
	mark := fence.NewMark(&fence.Memory{}, nil)
	ctx := context.Background()
	older, newer := leases()
	pay := func(context.Context) error { fmt.Println("paid"); return nil }

	fmt.Println(mark.Do(ctx, "ledger/7", newer, pay))
	err := mark.Do(ctx, "ledger/7", older, pay)
	fmt.Println("a former leader is refused:", errors.Is(err, driver.ErrLost))
	// Output:
	// paid
	// <nil>
	// a former leader is refused: true
}

// ledger creates a database that contains a table of payments and the marks.
func ledger() (db *sql.DB, marks *fence.SQL, remove func()) {
	dir, err := os.MkdirTemp("", "marks")
	if err != nil {
		log.Fatal(err)
	}
	if db, err = sql.Open("sqlite", filepath.Join(dir, "app.db")); err != nil {
		log.Fatal(err)
	}
	if marks, err = fence.NewSQL(db, fence.SQLOptions{Dialect: driver.SQLite}); err != nil {
		log.Fatal(err)
	}
	if _, err = db.Exec(marks.Schema() + "; CREATE TABLE payments (cents INTEGER)"); err != nil {
		log.Fatal(err)
	}
	return db, marks, func() { db.Close(); os.RemoveAll(dir) }
}

// The transaction that writes also raises the mark.
func ExampleSQL_AdmitTx() {
	db, marks, remove := ledger()
	defer remove()
	ctx := context.Background()
	older, newer := leases()
	pay := func(f driver.Fence, cents int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := marks.AdmitTx(ctx, tx, "ledger", f); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES (?)", cents); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(pay(newer, 100))
	fmt.Println("a former leader is refused:", errors.Is(pay(older, 100), driver.ErrLost))
	// Output:
	// <nil>
	// a former leader is refused: true
}

// Several processes of a service write to one database. Handler refuses old tokens early, and
// passes the fence to the application's handler, whose transaction decides.
func ExampleWriteError() {
	db, marks, remove := ledger()
	defer remove()
	older, newer := leases()
	overtaken := false
	pay := func(w http.ResponseWriter, r *http.Request) {
		if overtaken { // another process admits the new leader before the transaction begins
			if _, err := marks.Raise(r.Context(), "ledger", newer); err != nil {
				log.Fatal(err)
			}
		}
		tx, err := db.BeginTx(r.Context(), nil)
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		defer tx.Rollback()
		f, _ := fence.FromContext(r.Context())
		if err := marks.AdmitTx(r.Context(), tx, "ledger", f); err != nil {
			fence.WriteError(w, err)
			return
		}
		if _, err = tx.Exec("INSERT INTO payments VALUES (100)"); err == nil {
			err = tx.Commit()
		}
		if err != nil {
			http.Error(w, "perhaps paid", http.StatusInternalServerError)
		}
	}
	toLedger := &fence.HTTPOptions{Resource: func(*http.Request, driver.Fence) string { return "ledger" }}
	server := httptest.NewServer(fence.NewMark(marks, nil).Handler(http.HandlerFunc(pay), toLedger))
	defer server.Close()

	client := &http.Client{Transport: &fence.Transport{}}
	for range 2 {
		req, err := http.NewRequestWithContext(fence.NewContext(context.Background(), older), http.MethodPost, server.URL, nil)
		if err != nil {
			log.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(resp.StatusCode, "refused:", errors.Is(fence.ResponseError(resp), driver.ErrLost))
		resp.Body.Close()
		overtaken = true
	}
	// Output:
	// 200 refused: false
	// 412 refused: true
}
