package conformance_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
)

// The harness of a backend over package kv provides network faults in three lines.
func ExampleKVFaults() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	harness := conformance.Harness{
		Name: "mystore",
		New: func(conformance.T) *conformance.Store {
			store := memory.New() // here your own, whose Open gives wrap(client) to kv.Open
			return &conformance.Store{
				Open: func(ctx context.Context) (driver.Backend, error) {
					return memory.Open(ctx, store, "example", nil)
				},
				OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
					wrap, wire := conformance.KVFaults()
					b, err := memory.Open(ctx, store, "example", &memory.Options{Wrap: wrap})
					return b, wire, err
				},
			}
		},
	}
	report, err := conformance.Check(ctx, harness, "Commit/LateRequestRefused", "Commit/DuplicateRequestHarmless")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report)
	// Output:
	// mystore: 2 passed, 0 failed, 0 skipped
}
