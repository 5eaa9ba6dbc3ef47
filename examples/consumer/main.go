package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/fx"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/tenurefx"
)

func main() {
	db := flag.String("db", "consumer.db", "the database file, made if it is missing")
	url := flag.String("nats", nats.DefaultURL, "a NATS server with JetStream")
	node := flag.String("node", "", "name of this process; empty: the host's")
	flag.Parse()
	c, err := load(*db, *node)
	if err != nil {
		log.Fatal(err)
	}
	nc, err := nats.Connect(*url)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = run(ctx, c, nc)
	stop()
	nc.Close()
	if err != nil {
		log.Fatal(err)
	}
}

// A larger application would read this configuration from a file.
func load(db, node string) (*config.Config, error) {
	const text = `
tenure:
  backends: {sqlite: {namespace: consumer}}
  sharding:
    interval: 200ms
    shards: [accounts-0000..7]
  drain_budget: 5s
`
	return config.Load(&config.LoadOptions{Path: "consumer.yaml", Data: []byte(text), Environ: []string{
		"TENURE__BACKENDS__SQLITE__PATH=" + db, "TENURE__NODE=" + node,
	}})
}

func run(ctx context.Context, c *config.Config, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	stream, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: streamName, Subjects: []string{subjects}})
	if err != nil {
		return err
	}
	return serve(ctx, fx.New(app(c, stream), fx.Supply(slog.Default()), fx.StopTimeout(c.StopTimeout())))
}

// serve runs an application until ctx ends or the application stops itself. A nonzero exit code
// results in an error.
func serve(ctx context.Context, a *fx.App) error {
	if err := a.Start(ctx); err != nil {
		return err
	}
	var failed error
	select {
	case <-ctx.Done():
	case s := <-a.Wait():
		if s.ExitCode != 0 {
			failed = fmt.Errorf("ended with exit code %d", s.ExitCode)
		}
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.StopTimeout())
	defer cancel()
	return errors.Join(failed, a.Stop(stopping))
}

func app(c *config.Config, stream jetstream.Stream) fx.Option {
	return fx.Options(
		fx.Supply(c),
		tenurefx.Backends(sqlite.Opener()),
		tenurefx.Module(),
		tenurefx.Sharding(),
		fx.Provide(func() tenurefx.ShardHandler { return handler(stream) }),
	)
}
