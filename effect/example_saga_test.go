package effect_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"slices"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
)

// book represents a call to a service that honors idempotency keys and has no room left.
func book(what string) effect.Func {
	return func(_ context.Context, key string) ([]byte, error) {
		fmt.Println(what)
		if what == "book hotel" {
			return nil, effect.Refused(errors.New("no room"))
		}
		return []byte("ok"), nil
	}
}

// A saga is a sequence of effects, each of which can be compensated by another effect. The ledger
// keeps the results. The next leader therefore runs the same function from its beginning, but
// repeats no call.
func Example_saga() {
	trip := func(ctx context.Context, lease *core.Lease) error {
		ledger, err := effect.Open(ctx, lease, &effect.Options{Repeatable: true})
		if err != nil {
			return err
		}
		defer ledger.Close()
		steps := []string{"flight", "hotel", "car"}
		for i, step := range steps {
			_, err := ledger.Do(ctx, "trip-7/book/"+step, book("book "+step))
			switch {
			case errors.Is(err, effect.ErrFailed): // it did not happen, and will not happen
				for _, step := range slices.Backward(steps[:i]) {
					if _, err := ledger.Do(ctx, "trip-7/cancel/"+step, book("cancel "+step)); err != nil {
						return err
					}
				}
				fmt.Println("no trip, for want of a", step)
				return nil
			case err != nil: // in doubt, or the lease is over; tried again by this leader or another
				return err
			}
		}
		return nil
	}
	backend, err := memory.Open(context.Background(), memory.New(), "trips", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	for range 2 { // two leaders
		o := &core.Options{LockDir: "none", Logger: slog.New(slog.DiscardHandler)}
		if err := core.RunSingleton(context.Background(), backend, "trip-7", trip, o); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// book flight
	// book hotel
	// cancel flight
	// no trip, for want of a hotel
	// no trip, for want of a hotel
}
