package driver_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core/driver"
)

// mySettings are the keys of a backend in configuration.
type mySettings struct {
	Namespace string        `yaml:"namespace"`
	Password  driver.Secret `yaml:"password"`
}

// The configuration selects your own backend by name, as it selects Tenure's backends.
func ExampleNewOpener() {
	opener := driver.NewOpener("mystore", func(ctx context.Context, s *mySettings) (driver.Backend, error) {
		fmt.Println("opens", s.Namespace, "with password", s.Password)
		return memory.Open(ctx, memory.New(), s.Namespace, nil) // open your own backend here
	})
	c, err := config.Load(&config.LoadOptions{
		Path: "app.yaml", Data: []byte("tenure: {backends: {mystore: {namespace: orders, password: hidden}}}"),
		Environ: []string{},
	})
	if err != nil {
		log.Fatal(err)
	}
	b, err := c.Open(context.Background(), opener)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("closed:", b.Close())
	// Output:
	// opens orders with password xxxxx
	// closed: <nil>
}

// A caller may repeat a write that was certainly not applied. After any other error, including a
// deadline, the caller must first find out whether the write was applied.
func ExampleUnknown() {
	for _, err := range []error{
		nil,
		fmt.Errorf("commit: %w", driver.ErrFenced),
		fmt.Errorf("commit: %w", driver.ErrRetry),
		fmt.Errorf("commit: %w", context.DeadlineExceeded),
		errors.New("connection reset"),
	} {
		fmt.Printf("not applied: %-5t  unknown: %-5t  %v\n", driver.NotApplied(err), driver.Unknown(err), err)
	}
	// Output:
	// not applied: false  unknown: false  <nil>
	// not applied: true   unknown: false  commit: fenced: lease lost: it is no longer the shard's current grant
	// not applied: true   unknown: false  commit: not applied, may be tried again
	// not applied: false  unknown: true   commit: context deadline exceeded
	// not applied: false  unknown: true   connection reset
}
