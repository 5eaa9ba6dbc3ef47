package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
)

func main() {
	db := flag.String("db", "outbox.db", "the database file, made if it is missing")
	shard := flag.String("shard", "orders", "the shard to contend for")
	url := flag.String("nats", "", "a NATS server with JetStream; empty: one in this process, with its data beside "+
		"the database")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *db, *shard, *url); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path, shard, url string) (err error) {
	nc, closeNATS, err := connect(url, path+"-nats")
	if err != nil {
		return err
	}
	defer closeNATS()
	b, err := sqlite.Open(ctx, path, "outbox", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()

	r, err := newRelay(ctx, nc)
	if err != nil {
		return err
	}
	tailer, err := follower.NewTailer(b, &follower.Options{OnEvent: func(e follower.Event) {
		if e.Kind == follower.Failed {
			log.Print(e.Err)
		}
	}})
	if err != nil {
		return err
	}
	if err := tailer.Follow("outbox", r, "*"); err != nil {
		return err
	}
	consumer, err := r.stream.OrderedConsumer(ctx,
		jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		return err
	}
	consuming, err := consumer.Consume(func(msg jetstream.Msg) {
		fmt.Printf("%s %s\n", msg.Headers().Get(headerPosition), msg.Data())
	})
	if err != nil {
		return err
	}
	defer consuming.Stop()

	e, err := core.NewElector(b, nil)
	if err != nil {
		return err
	}
	if err := e.Contend(decide, shard); err != nil {
		return err
	}
	// If the member or the relay fails permanently, the other one also ends.
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	relayed := make(chan error, 1)
	go func() {
		defer cancel()
		relayed <- tailer.Run(both)
	}()
	err = e.Run(both)
	cancel()
	return errors.Join(err, <-relayed)
}

// The owner's handler makes a decision every second.
func decide(ctx context.Context, lease *core.Lease) error {
	for {
		if _, err := lease.Append(ctx, []byte(time.Now().Format(time.TimeOnly))); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// If url is empty, connect starts a NATS server in this process.
func connect(url, folder string) (*nats.Conn, func(), error) {
	if url != "" {
		nc, err := nats.Connect(url)
		if err != nil {
			return nil, nil, err
		}
		return nc, nc.Close, nil
	}
	s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: folder, NoSigs: true})
	if err != nil {
		return nil, nil, err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		return nil, nil, errors.New("the NATS server did not start in 10 s")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		s.Shutdown()
		return nil, nil, err
	}
	return nc, func() {
		nc.Close()
		s.Shutdown()
		s.WaitForShutdown()
	}, nil
}
