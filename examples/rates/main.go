package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
)

func main() {
	db := flag.String("db", "rates.db", "the database file, made if it is missing")
	node := flag.String("node", "", "this process's label; default the host name")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *db, *node); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path, node string) (err error) {
	b, err := sqlite.Open(ctx, path, "rates", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	e, err := core.NewElector(b, &core.Options{Node: node, TTL: 2 * time.Second, LameDuck: time.Second})
	if err != nil {
		return err
	}
	if err := e.Contend(lead, shard); err != nil {
		return err
	}
	d := &board{b: b}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { d.follow(ctx, 100*time.Millisecond, func(err error) { log.Print("refresh: ", err) }) })
	all.Go(func() { serve(ctx, d) })
	return e.Run(ctx)
}

// The leader's handler sets a rate every second.
func lead(ctx context.Context, lease *core.Lease) error {
	log.Printf("leading with token %d", lease.Token())
	for {
		if err := set(ctx, lease, map[string]float64{"EUR/USD": 1 + rand.Float64()/4}); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			log.Print("leading no more: ", context.Cause(ctx))
			return nil
		case <-time.After(time.Second):
		}
	}
}

// A real service would answer requests instead of printing the rate.
func serve(ctx context.Context, d *board) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
		if rate, err := d.rate("EUR/USD", time.Second); err != nil {
			log.Print("not served: ", err)
		} else {
			fmt.Printf("EUR/USD %.4f\n", rate)
		}
	}
}
