package memory_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
)

// Two processes use one store. The second process's claim is denied until the first process has
// left.
func Example() {
	ctx := context.Background()
	store := memory.New()
	var sessions []driver.Session
	for _, name := range []driver.SessionID{"first", "second"} {
		b, err := memory.Open(ctx, store, "orders", nil)
		if err != nil {
			log.Fatal(err)
		}
		defer b.Close()
		s, err := b.Join(ctx, driver.Member{Session: name, Node: string(name), TTL: 5 * time.Second})
		if err != nil {
			log.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	first, second := sessions[0], sessions[1]

	claim := driver.Claim{Shard: "billing"}
	got, err := first.Acquire(ctx, []driver.Claim{claim})
	if err != nil {
		log.Fatal(err)
	}
	claim.Seen = driver.Owner{Session: first.ID(), Token: got[0].Fence.Token}
	denied, err := second.Acquire(ctx, []driver.Claim{claim})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("while the first lives, denied:", errors.Is(denied[0].Err, driver.ErrHeld))

	if err := first.Close(ctx); err != nil {
		log.Fatal(err)
	}
	next, err := second.Acquire(ctx, []driver.Claim{claim})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("afterwards, granted with a greater token:", next[0].Fence.Token > got[0].Fence.Token)

	late, err := first.Commit(ctx, []driver.Write{{
		Fence: got[0].Fence, Number: 1, Nonce: 1, Ops: []driver.Op{{Kind: driver.OpAppend, Value: []byte("too late")}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the first one's late write, fenced:", errors.Is(late[0].Err, driver.ErrFenced))
	// Output:
	// while the first lives, denied: true
	// afterwards, granted with a greater token: true
	// the first one's late write, fenced: true
}
