package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
)

// open returns one process's connection to a store that all processes share.
func open(store *memory.Store) core.Backend {
	b, err := memory.Open(context.Background(), store, "shop", nil)
	if err != nil {
		log.Fatal(err)
	}
	return b
}

func ExampleRunSingleton() {
	backend := open(memory.New())
	defer backend.Close()

	err := core.RunSingleton(context.Background(), backend, "nightly-report",
		func(ctx context.Context, lease *core.Lease) error {
			fmt.Println("only one process does this:", lease.Shard())
			return nil // done; after an error, h would run again, here or in another process
		}, nil)
	fmt.Println("error:", err)
	// Output:
	// only one process does this: nightly-report
	// error: <nil>
}

// Every process calls RunOnce when it starts. One process migrates, and the others wait for the
// result.
func ExampleRunOnce() {
	store := memory.New()
	migrate := func(ctx context.Context, lease *core.Lease) ([]byte, error) {
		fmt.Println("migrates") // must be repeatable, because a process may die in the middle
		return []byte("1200 rows"), nil
	}
	for range 2 { // two processes, or the same process after a restart
		backend := open(store)
		result, err := core.RunOnce(context.Background(), backend, "schema-7", migrate, nil)
		fmt.Println(string(result), errors.Join(err, backend.Close()))
	}
	// Output:
	// migrates
	// 1200 rows <nil>
	// 1200 rows <nil>
}

func ExampleElector() {
	backend := open(memory.New())
	defer backend.Close()
	elector, err := core.NewElector(backend, &core.Options{Node: "server-1"})
	if err != nil {
		log.Fatal(err)
	}

	started := make(chan struct{})
	handler := func(ctx context.Context, lease *core.Lease) error {
		close(started)
		<-ctx.Done() // serve until asked to stop
		fmt.Println("asked to stop:", errors.Is(context.Cause(ctx), core.ErrShutdown))
		_, err := lease.Append(lease.Context(), []byte("closed")) // the lease is still held
		return err
	}
	if err := elector.Contend(handler, "orders"); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-started
		stop()
	}()
	fmt.Println("error:", elector.Run(ctx))
	// Output:
	// asked to stop: true
	// error: <nil>
}

// A new owner continues from the log where the former owner stopped.
func ExampleLease_Append() {
	store := memory.New()
	for _, node := range []string{"first", "second"} {
		backend := open(store)
		err := core.RunSingleton(context.Background(), backend, "counter",
			func(ctx context.Context, lease *core.Lease) error {
				page, err := lease.ReadLog(ctx, 0, 100)
				if err != nil {
					return err
				}
				seq, err := lease.Append(ctx, []byte(node))
				fmt.Printf("%s finds %d entries and writes entry %d\n", node, len(page.Entries), seq)
				return err
			}, &core.Options{Node: node})
		if err := errors.Join(err, backend.Close()); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// first finds 0 entries and writes entry 1
	// second finds 1 entries and writes entry 2
}

// A commit is all or nothing. If a precondition fails, the error names the operation.
func ExampleLease_Commit() {
	backend := open(memory.New())
	defer backend.Close()
	err := core.RunSingleton(context.Background(), backend, "stock",
		func(ctx context.Context, lease *core.Lease) error {
			done, err := lease.Commit(ctx,
				core.PutIf("apples", []byte("7"), core.Absent),
				core.Append([]byte("apples: 7")))
			if err != nil {
				return err
			}
			fmt.Println("entry", done.Last)

			_, err = lease.Commit(ctx,
				core.Append([]byte("apples: 8")),
				core.PutIf("apples", []byte("8"), core.Absent))
			var conflict *core.ConflictError
			if errors.As(err, &conflict) {
				fmt.Println("operation", conflict.Op, "was refused; not applied:", core.NotApplied(err))
			}
			fmt.Println("the log's head is", lease.Head().Seq)
			return nil
		}, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// entry 1
	// operation 1 was refused; not applied: true
	// the log's head is 1
}

// Another member takes a shard over in one write, without waiting for a TTL.
func ExampleElector_HandOver() {
	store := memory.New()
	ctx, stop := context.WithCancel(context.Background())
	owners := make(chan string, 2)
	serve := func(node string) core.Handler {
		return func(ctx context.Context, lease *core.Lease) error {
			owners <- node
			<-ctx.Done()
			return nil
		}
	}
	var electors []*core.Elector
	ended := make(chan error)
	for _, node := range []string{"old", "new"} {
		backend := open(store)
		e, err := core.NewElector(backend, &core.Options{Node: node})
		if err != nil {
			log.Fatal(err)
		}
		if err := e.Contend(serve(node), "orders"); err != nil {
			log.Fatal(err)
		}
		go func() { ended <- errors.Join(e.Run(ctx), backend.Close()) }()
		electors = append(electors, e)
		if node == "old" {
			fmt.Println(<-owners, "owns it")
		}
	}

	view := electors[0].View()
	for len(view.Members) < 2 { // until it sees the other member
		var err error
		if view, err = electors[0].WaitView(ctx, view); err != nil {
			log.Fatal(err)
		}
	}
	for _, m := range view.Members {
		if m.Node == "new" {
			if err := electors[0].HandOver(ctx, m.Session, "orders"); err != nil {
				log.Fatal(err)
			}
		}
	}
	fmt.Println(<-owners, "owns it")
	stop()
	fmt.Println("errors:", errors.Join(<-ended, <-ended))
	// Output:
	// old owns it
	// new owns it
	// errors: <nil>
}
