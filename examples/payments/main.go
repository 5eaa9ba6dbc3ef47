package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
)

func main() {
	var due []payment
	for i := range 20 {
		due = append(due, payment{fmt.Sprintf("order-%02d", i+1), 100 * (i + 1), time.Now().Add(time.Duration(i) * 100 * time.Millisecond)})
	}
	report, err := run(context.Background(), due)
	fmt.Println(report)
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, due []payment) (report string, err error) {
	bank := newProvider(due)
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: bank, ReadHeaderTimeout: time.Second}
	defer func() { _ = server.Close() }()
	go func() { _ = server.Serve(ln) }()

	store := memory.New() // the store of a real application outlives the application
	first, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		<-bank.half
		stop()
	}()
	if err := member(first, store, nil, "a", "http://"+ln.Addr().String(), due); !errors.Is(err, context.Canceled) {
		return "", fmt.Errorf("the first leader was to be stopped in the middle: %w", err)
	}
	if err := member(ctx, store, nil, "b", "http://"+ln.Addr().String(), due); err != nil {
		return "", err
	}
	return bank.check()
}

func member(ctx context.Context, store *memory.Store, o *memory.Options, node, bank string, due []payment) (err error) {
	b, err := memory.Open(ctx, store, "shop", o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return core.RunSingleton(ctx, b, "payments", func(ctx context.Context, lease *core.Lease) error {
		return schedule(ctx, lease, bank, due)
	}, &core.Options{Node: node, TTL: 2 * time.Second, CallTimeout: time.Second, LockDir: "none"})
}
