package effect_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
)

// charge stands for a call of the bank, which makes one charge for each id.
func charge(_ context.Context, id string) ([]byte, error) {
	fmt.Println("charged with", id)
	return []byte("receipt 4711"), nil
}

// A payment is made once, however often it is asked for, and by however many leaders.
func Example() {
	backend, err := memory.Open(context.Background(), memory.New(), "shop", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	pay := func(ctx context.Context, lease *core.Lease) error {
		ledger, err := effect.Open(ctx, lease, &effect.Options{Repeatable: true}) // the bank honours ids
		if err != nil {
			return err
		}
		defer ledger.Close()
		receipt, err := ledger.Do(ctx, "pay/order-17", charge)
		fmt.Println(string(receipt), err)
		return nil
	}
	for range 2 {
		o := &core.Options{LockDir: "none", Logger: slog.New(slog.DiscardHandler)}
		if err := core.RunSingleton(context.Background(), backend, "payments", pay, o); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// charged with a3de34b5-111b-8afc-b492-205b7718564d
	// receipt 4711 <nil>
	// receipt 4711 <nil>
}

// Without idempotency keys at the other side, Resolve asks it what it knows.
func ExampleOptions_resolve() {
	find := func(_ context.Context, id string) (receipt []byte, err error) {
		return []byte("receipt of " + id[:8]), nil
	}
	o := &effect.Options{Resolve: func(ctx context.Context, e effect.Effect) (effect.Decision, error) {
		receipt, err := find(ctx, e.ID)
		if err != nil || receipt == nil {
			return effect.Decision{Reason: "the bank does not know it, or not yet"}, err // for a person
		}
		return effect.Decision{State: effect.Done, Result: receipt}, nil
	}}
	d, err := o.Resolve(context.Background(), effect.Effect{Key: "pay/order-17", ID: effect.ID("shop/payments", "pay/order-17")})
	fmt.Println(d.State, string(d.Result), err)
	// Output:
	// done receipt of a3de34b5 <nil>
}
