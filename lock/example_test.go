package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/lock"
)

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store := memory.New()
	b, err := memory.Open(ctx, store, "billing", nil)
	if err != nil {
		panic(err)
	}
	defer b.Close()
	locks, err := lock.New(b, &core.Options{Node: "worker-1", LockDir: "none"})
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	k, err := locks.Lock(ctx, "invoice-123")
	if err != nil {
		panic(err)
	}
	if _, err := locks.TryLock(ctx, "invoice-123"); errors.Is(err, lock.ErrHeld) {
		fmt.Println("one at a time")
	}
	first := k.Token()
	if err := k.Unlock(ctx); err != nil {
		panic(err)
	}
	if k, err = locks.Lock(ctx, "invoice-123"); err != nil {
		panic(err)
	}
	fmt.Println("a greater token each time:", k.Token() > first)
	if err := k.Unlock(ctx); err != nil {
		panic(err)
	}
	// Output:
	// one at a time
	// a greater token each time: true
}

// Do locks a name for one call of a function.
func ExampleDo() {
	ctx := context.Background()
	b, err := memory.Open(ctx, memory.New(), "billing", nil)
	if err != nil {
		panic(err)
	}
	defer b.Close()
	err = lock.Do(ctx, b, "invoice-123", func(ctx context.Context, k *lock.Lock) error {
		fmt.Println("holds", k.Name(), ctx.Err())
		return nil
	})
	fmt.Println(err)
	// Output:
	// holds invoice-123 <nil>
	// <nil>
}
