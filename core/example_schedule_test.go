package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
)

// Each leader commits the time of a run together with its result. The next leader therefore neither
// omits nor repeats a run.
func ExampleRunSingleton_schedule() {
	const every = time.Hour
	began := time.Now().Add(-3 * every)
	schedule := func(ctx context.Context, lease *core.Lease) error {
		last := began
		item, err := lease.Get(ctx, "last")
		if err != nil {
			return err
		}
		if item != nil {
			if last, err = time.Parse(time.RFC3339, string(item.Value)); err != nil {
				return err
			}
		}
		due := last.Add(every)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(due)): // immediately, if no process led when the run was due
		}
		done, err := lease.Commit(lease.Context(),
			core.Put("last", due.AppendFormat(nil, time.RFC3339)),
			core.Append([]byte("report")))
		if err != nil {
			return err
		}
		fmt.Println("report", done.Last, "is for hour", due.Sub(began).Round(time.Hour).Hours())
		return nil // a service would wait for the next run instead
	}
	store := memory.New()
	for _, node := range []string{"first", "second"} { // two processes
		backend := open(store)
		o := &core.Options{Node: node, Logger: slog.New(slog.DiscardHandler)}
		err := core.RunSingleton(context.Background(), backend, "reports", schedule, o)
		if err := errors.Join(err, backend.Close()); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// report 1 is for hour 1
	// report 2 is for hour 2
}
