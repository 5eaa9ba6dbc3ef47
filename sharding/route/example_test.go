package route_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
)

// A member serves requests for the shards that it owns, and forwards all others.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	backend, err := memory.Open(ctx, memory.New(), "orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	server := httptest.NewUnstartedServer(nil)
	defer server.Close()
	e, err := core.NewElector(backend, &core.Options{
		Node: "a", Meta: map[string]string{"http": "http://" + server.Listener.Addr().String()},
		LockDir: "none", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	serving := make(chan struct{})
	err = e.Contend(func(ctx context.Context, lease *core.Lease) error {
		close(serving)
		<-ctx.Done()
		return nil
	}, "orders-0000")
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan error, 1)
	run, end := context.WithCancel(ctx)
	go func() { ran <- e.Run(run) }()

	router, err := sharding.NewRouter(e, nil)
	if err != nil {
		log.Fatal(err)
	}
	orders := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease := route.FromContext(r.Context())
		seq, err := lease.Append(lease.Context(), []byte(r.URL.Path))
		_, _ = fmt.Fprintln(w, lease.Shard(), "has entry", seq, err)
	})
	server.Config.Handler, err = route.NewHandler(e, router, orders, &route.Options{
		Shard:   func(r *http.Request) (string, error) { return "orders-0000", nil },
		Forward: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	server.Start()
	<-serving
	resp, err := http.Post(server.URL+"/orders/1", "text/plain", nil)
	if err != nil {
		log.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	fmt.Print(string(text))
	fmt.Println(err, resp.Body.Close())
	end()
	fmt.Println(<-ran)
	// Output:
	// orders-0000 has entry 1 <nil>
	// <nil> <nil>
	// <nil>
}
