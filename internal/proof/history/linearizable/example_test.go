package linearizable_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/history/linearizable"
)

// Two members claim one shard, which both saw as free. A correct store grants the shard once. In
// both models, porcupine finds no order of the claims that explains two grants, and draws the
// longest order that it found.
func Example() {
	r, err := history.NewRecorder("test")
	if err != nil {
		log.Fatal(err)
	}
	claim := func(session driver.SessionID, token driver.Token) []history.Finding {
		op := r.Call(history.Operation{Kind: history.Acquire, Shard: "orders", Session: session})
		// ... here the store is called ...
		op.Outcome, op.Granted = history.OK, driver.Fence{Shard: "orders", Session: session, Token: token}
		r.Return(op)
		return linearizable.Check(r.History(), time.Minute)
	}
	fmt.Println("one grant:", len(claim("a", 7)), "findings")
	found := claim("b", 8)
	for _, f := range found {
		fmt.Println("two grants:", f.Rule, f.Check, f.Shard)
	}

	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := linearizable.Draw(dir, r.History(), found); err != nil {
		log.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		log.Fatal(err)
	}
	for _, page := range pages {
		fmt.Println("drawn:", filepath.Base(page))
	}
	// Output:
	// one grant: 0 findings
	// two grants: A1 lease-linearizable orders
	// two grants: F1 log-linearizable orders
	// drawn: lease-linearizable-orders.html
	// drawn: log-linearizable-orders.html
}
