package tenurehttp_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/observe/tenurehttp"
)

// A load balancer finds the leader by requesting /leader from each member.
func ExampleHandler() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	backend, err := memory.Open(ctx, memory.New(), "orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	e, err := core.NewElector(backend, &core.Options{LockDir: "none", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(tenurehttp.Handler(e, nil))
	defer server.Close()
	err = e.Contend(func(context.Context, *core.Lease) error {
		defer stop()
		answer, err := http.Get(server.URL + "/leader?shard=invoices")
		if err != nil {
			return err
		}
		fmt.Println("this member leads:", answer.StatusCode)
		return answer.Body.Close()
	}, "invoices")
	if err != nil {
		log.Fatal(err)
	}
	_ = e.Run(ctx) // Run ends with the context
	// Output:
	// this member leads: 200
}
