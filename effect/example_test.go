package effect_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"strings"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
)

// charge represents a call to the bank, which makes one charge for each id.
func charge(_ context.Context, id string) ([]byte, error) {
	fmt.Println("charged with", id)
	return []byte("receipt 4711"), nil
}

// A payment is made once, even if several leaders request it several times.
func Example() {
	backend, err := memory.Open(context.Background(), memory.New(), "shop", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	pay := func(ctx context.Context, lease *core.Lease) error {
		ledger, err := effect.Open(ctx, lease, &effect.Options{Repeatable: true}) // the bank honors ids
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

// If the client cannot connect to the server, the server has done nothing, so the ledger calls the
// function again.
func ExampleNotSent() {
	charge := func(ctx context.Context, id string) ([]byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:1/charges", strings.NewReader(id))
		if err != nil {
			return nil, effect.Refused(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil, effect.NotSent(err)
		}
		defer resp.Body.Close()
		return io.ReadAll(io.LimitReader(resp.Body, effect.MaxMaxResult))
	}
	_, err := charge(context.Background(), effect.ID("shop/payments", "pay/order-17"))
	fmt.Println(err != nil)
	// Output: true
}

// If the receiver has no idempotency keys, Resolve asks the receiver about the charge.
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
