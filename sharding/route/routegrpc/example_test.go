package routegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
	"github.com/tenure-go/tenure/sharding/route/routegrpc"
)

// orders represents your own service. It serves health checks, whose code is part of gRPC. A
// check's Service is the name of an order.
type orders struct {
	grpc_health_v1.UnimplementedHealthServer
}

// Check commits under the lease of the order's shard.
func (orders) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	lease := route.FromContext(ctx)
	seq, err := lease.Append(ctx, []byte(r.Service))
	fmt.Println(lease.Shard(), "has entry", seq)
	return &grpc_health_v1.HealthCheckResponse{}, err
}

// A member serves the calls for the shards that it owns. It answers other calls with the owner or,
// with Options.Peers, forwards them.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	backend, err := memory.Open(ctx, memory.New(), "orders", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	e, err := core.NewElector(backend, &core.Options{
		Node: "a", Meta: map[string]string{"grpc": l.Addr().String()},
		LockDir: "none", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	serving := make(chan struct{})
	err = e.Contend(func(ctx context.Context, _ *core.Lease) error {
		close(serving)
		<-ctx.Done()
		return nil
	}, "orders-0000")
	if err != nil {
		log.Fatal(err)
	}
	router, err := sharding.NewRouter(e, nil)
	if err != nil {
		log.Fatal(err)
	}
	in, err := routegrpc.NewServer(e, router, &routegrpc.Options{
		Shard: func(_ context.Context, _ string, req any) (string, error) {
			return "orders-" + req.(*grpc_health_v1.HealthCheckRequest).Service, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(in.Unary), grpc.StreamInterceptor(in.Stream))
	grpc_health_v1.RegisterHealthServer(server, orders{})
	run, end := context.WithCancel(ctx)
	ran, served := make(chan error, 1), make(chan error, 1)
	go func() { ran <- e.Run(run) }()
	go func() { served <- server.Serve(l) }()

	<-serving
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	for _, order := range []string{"0000", "0001"} {
		_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: order})
		var other *routegrpc.OwnerError
		if errors.As(routegrpc.Error(err), &other) {
			fmt.Println(other.Shard, "is not served:", errors.Is(other, sharding.ErrNoOwner))
		} else if err != nil {
			log.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		log.Fatal(err)
	}
	server.Stop()
	end()
	fmt.Println(<-served, <-ran)
	// Output:
	// orders-0000 has entry 1
	// orders-0001 is not served: true
	// <nil> <nil>
}
