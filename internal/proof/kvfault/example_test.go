package kvfault_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

// The network holds a commit until the caller has given up, and then delivers the commit. The
// caller must not treat such a commit as failed.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	link := &kvfault.Link{}
	b, err := memory.Open(ctx, memory.New(), "orders", &memory.Options{Wrap: link.Wrap})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	s, err := b.Join(ctx, driver.Member{Session: "s1", Node: "n1", TTL: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	granted, err := s.Acquire(ctx, []driver.Claim{{Shard: "billing"}})
	if err != nil {
		log.Fatal(err)
	}

	link.Set(kvfault.Write, kvfault.HoldRequest)
	caller, giveUp := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		results, err := s.Commit(caller, []driver.Write{{
			Fence: granted[0].Fence, Number: 1, Nonce: 1, Ops: []driver.Op{{Kind: driver.OpAppend, Value: []byte("paid")}},
		}})
		if err == nil {
			err = results[0].Err
		}
		ended <- err
	}()
	if err := link.AwaitHeld(ctx, 1); err != nil {
		log.Fatal(err)
	}
	giveUp()
	fmt.Println("outcome unknown:", driver.Unknown(<-ended))

	link.Heal()
	fmt.Println("delivered:", link.Deliver())
	page, err := b.ReadLog(ctx, "billing", 0, 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("entries:", len(page.Entries))
	// Output:
	// outcome unknown: true
	// delivered: 1
	// entries: 1
}
