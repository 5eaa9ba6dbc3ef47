package follower_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
)

// An owner decides, and a projection elsewhere serves reads.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	store := memory.New()
	open := func() core.Backend {
		b, err := memory.Open(ctx, store, "bank", nil)
		if err != nil {
			log.Fatal(err)
		}
		return b
	}

	// The projection, in another process.
	replica := open()
	defer replica.Close()
	balance := make(map[string]int) // needs no lock, because there is one shard
	t, err := follower.NewTailer(replica, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = t.Follow("balances", follower.Memory(func(_ context.Context, b follower.Batch) error {
		for _, e := range b.Entries {
			balance[b.Shard()] += int(e.Payload[0])
		}
		return nil
	}, nil), "account-1")
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- t.Run(ctx) }()

	// The owner.
	backend := open()
	defer backend.Close()
	var mine follower.Position
	err = core.RunSingleton(ctx, backend, "account-1", func(ctx context.Context, lease *core.Lease) error {
		for _, amount := range []byte{10, 20, 12} {
			seq, err := lease.Append(ctx, []byte{amount})
			if err != nil {
				return err
			}
			mine = follower.Position{Shard: lease.Shard(), Seq: seq, Token: lease.Token()}
		}
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	// A read must see the last write, whose position came as a string.
	p, err := follower.ParsePosition(mine.String())
	if err != nil {
		log.Fatal(err)
	}
	if err := t.WaitFor(ctx, p.Shard, p.Seq); err != nil {
		log.Fatal(err)
	}
	fmt.Println("balance:", balance["account-1"])
	fmt.Println("fresh:", t.Fresh("account-1", 0))

	stop()
	fmt.Println("stopped:", <-done)
	fmt.Println("stale:", errors.Is(t.Fresh("account-1", 0), follower.ErrStale))
	// Output:
	// balance: 42
	// fresh: <nil>
	// stopped: <nil>
	// stale: true
}

// Run follows shards until its context ends.
func ExampleRun() {
	ctx, stop := context.WithCancel(context.Background())
	b, err := memory.Open(ctx, memory.New(), "bank", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	err = core.RunSingleton(ctx, b, "account-1", func(ctx context.Context, lease *core.Lease) error {
		_, err := lease.Append(ctx, []byte("deposit"))
		return err
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	apply := func(_ context.Context, batch follower.Batch) error {
		for _, e := range batch.Entries {
			fmt.Printf("%s: %s\n", batch.Shard(), e.Payload)
		}
		stop()
		return nil
	}
	fmt.Println(follower.Run(ctx, b, "ledger", follower.Memory(apply, nil), "account-*"))
	// Output:
	// account-1: deposit
	// <nil>
}
