package control_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
)

// A rule is written under a lease of the reserved shard, as the command tenure does.
func ExamplePut() {
	ctx := context.Background()
	backend, err := memory.Open(ctx, memory.New(), "orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	err = core.RunSingleton(ctx, backend, control.Shard, func(_ context.Context, lease *core.Lease) error {
		op, err := control.Put(&control.Rule{Kind: control.Drain, Node: "node-3", Reason: "a new disk"})
		if err != nil {
			return err
		}
		_, err = lease.Commit(lease.Context(), op)
		return err
	}, &core.Options{LockDir: "none", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	rules, err := control.Read(ctx, backend)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range rules {
		fmt.Println(r.Kind, r.Node, r.Reason)
	}
	// Output:
	// drain node-3 a new disk
}
