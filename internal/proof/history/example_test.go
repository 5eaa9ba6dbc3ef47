package history_test

import (
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/history/linearizable"
)

// Two members trust leases of one shard at the same time, and the superseded member writes. The
// checks name the broken rules.
func Example() {
	r, err := history.NewRecorder("test")
	if err != nil {
		fmt.Println(err)
		return
	}
	grant := func(session driver.SessionID, seen driver.Owner, token driver.Token) driver.Fence {
		op := r.Call(history.Operation{Kind: history.Acquire, Shard: "orders", Session: session, Seen: seen,
			Preempt: true})
		// ... here the store is called ...
		op.Outcome, op.Granted = history.OK, driver.Fence{Shard: "orders", Session: session, Token: token}
		r.Return(op)
		return op.Granted
	}
	old := grant("a", driver.Owner{}, 7)
	grant("b", driver.Owner{Session: "a", Token: 7}, 8)

	op := r.Call(history.Operation{Kind: history.Commit, Shard: "orders", Fence: old, Number: 1, Nonce: 42})
	op.Outcome, op.Head = history.OK, driver.Head{Number: 1, Nonce: 42, Token: 7}
	r.Return(op)

	h := r.History()
	for _, f := range append(history.Check(h, nil), linearizable.Check(h, 0)...) {
		fmt.Println(f.Rule, f.Check)
	}
	// Output:
	// S3 nothing-accepted-after-a-higher-grant
	// F1 writes-agree-with-the-heads-of-grants
	// A1 lease-linearizable
	// F1 log-linearizable
}
