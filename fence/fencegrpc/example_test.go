package fencegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencegrpc"
)

// ledger represents your own service. It serves health checks, whose code is part of gRPC.
type ledger struct {
	grpc_health_v1.UnimplementedHealthServer
}

// Check is called only for admitted calls.
func (ledger) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	f, _ := fence.FromContext(ctx)
	fmt.Println("booked under", fence.Format(f))
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

// A server refuses a call from a former leader, because it has already seen a higher token.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	in := fencegrpc.NewServer(fence.NewMark(&fence.Memory{}, nil), &fencegrpc.Options{
		Resource: func(context.Context, string, driver.Fence) string { return "ledger" },
	})
	server := grpc.NewServer(grpc.UnaryInterceptor(in.Unary), grpc.StreamInterceptor(in.Stream))
	grpc_health_v1.RegisterHealthServer(server, ledger{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(fencegrpc.UnaryClient()))
	if err != nil {
		log.Fatal(err)
	}
	client := grpc_health_v1.NewHealthClient(conn)
	for _, f := range []driver.Fence{ // each as Lease.Fence returns it
		{Shard: "ledger", Session: "b", Token: 6},
		{Shard: "ledger", Session: "a", Token: 5},
	} {
		_, err := client.Check(fence.NewContext(ctx, f), &grpc_health_v1.HealthCheckRequest{})
		fmt.Println("refused:", errors.Is(fencegrpc.Error(err), driver.ErrLost))
	}
	if err := conn.Close(); err != nil {
		log.Fatal(err)
	}
	server.Stop()
	fmt.Println("served:", <-served)
	// Output:
	// booked under ledger/b/6
	// refused: false
	// refused: true
	// served: <nil>
}
