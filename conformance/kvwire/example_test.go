package kvwire_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tenure-go/tenure/backends/kv/kvfault"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/conformance/kvwire"
	"github.com/tenure-go/tenure/core/driver"
)

// The harness of a backend over package kv offers the faults of its network in three lines.
func ExampleNew() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	harness := conformance.Harness{
		Name: "mystore",
		New: func(conformance.T) *conformance.Store {
			store := memory.New() // here your own, with its client behind link.Wrap
			return &conformance.Store{
				Open: func(ctx context.Context) (driver.Backend, error) {
					return memory.Open(ctx, store, "example", nil)
				},
				OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
					link := &kvfault.Link{}
					b, err := memory.Open(ctx, store, "example", &memory.Options{Link: link})
					return b, kvwire.New(link), err
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
