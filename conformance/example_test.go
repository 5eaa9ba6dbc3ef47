package conformance_test

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
)

// In a test of your backend, give the same harness to [conformance.Test].
func ExampleCheck() {
	harness := conformance.Harness{
		Name: "memory",
		New: func(conformance.T) *conformance.Store {
			store := memory.New()
			return &conformance.Store{
				Open: func(ctx context.Context) (driver.Backend, error) {
					return memory.Open(ctx, store, "example", nil)
				},
			}
		},
	}
	report, err := conformance.Check(context.Background(), harness,
		"Acquire/ClaimOnLiveHolderRefused", "Commit/FencedAfterTakeover", "Chaos/WipeStore")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report)
	// Output:
	// memory: 2 passed, 0 failed, 1 skipped
	//   skipped Chaos/WipeStore
	//       the harness lacks Wipe
}
