package changelog_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/proof/watchless"
)

// The backend of a store without a watch, such as Consul, opens the store through change logs. This
// example uses an in-memory store whose watch is hidden. Your store implements changelog.Store.
func ExampleNew() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := memory.New()
	open := func() *kv.Backend {
		client := watchless.New(server.Client())
		b, err := kv.Open(ctx, changelog.New(client, "orders", changelog.Options{}), kv.Options{
			Backend: "mystore", Namespace: "orders", Create: true,
			Limits: driver.Limits{BatchItems: 60, WriteOps: 100, WriteBytes: 1 << 20, MinTTL: time.Second},
		})
		if err != nil {
			log.Fatal(errors.Join(err, client.Close()))
		}
		return b
	}
	writer, reader := open(), open() // as two processes
	defer writer.Close()
	defer reader.Close()

	view, err := reader.Observe(ctx, driver.ObserveQuery{})
	if err != nil {
		log.Fatal(err)
	}
	s, err := writer.Join(ctx, driver.Member{Session: "s1", Node: "n1", TTL: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Acquire(ctx, []driver.Claim{{Shard: "billing"}}); err != nil {
		log.Fatal(err)
	}
	for len(view.Shards) == 0 { // each call waits for a change
		if view, err = reader.Observe(ctx, driver.ObserveQuery{Since: view.Cursor}); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("the reader sees that", view.Shards[0].Owner.Session, "owns", view.Shards[0].Shard)
	// Output:
	// the reader sees that s1 owns billing
}
