package main

import (
	"context"
	"flag"
	"log"
	"time"

	"go.uber.org/fx"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/tenurefx"
)

func main() {
	path := flag.String("config", "cron.yaml", "the configuration file")
	flag.Parse()
	c, err := config.Load(&config.LoadOptions{Path: *path})
	if err != nil {
		log.Fatal(err)
	}
	job := func(context.Context) (string, error) { return time.Now().Format(time.RFC3339), nil }
	fx.New(app(c, time.Second, job), fx.StopTimeout(c.StopTimeout())).Run()
}

// app returns the whole application. One value of its configuration chooses the backend.
func app(c *config.Config, every time.Duration, job func(context.Context) (string, error)) fx.Option {
	return fx.Options(
		fx.Supply(c),
		tenurefx.Backends(memory.Opener(), sqlite.Opener(), postgres.Opener(), mysql.Opener(), etcd.Opener(),
			consul.Opener(), zookeeper.Opener(), redis.Opener()),
		tenurefx.Module(),
		fx.Provide(tenurefx.AsElection(func() tenurefx.Election {
			return tenurefx.Election{Shards: []string{"cron"}, Handler: func(
				ctx context.Context, lease *core.Lease,
			) error {
				return lead(ctx, lease, every, job)
			}}
		})),
	)
}

// lastRun is the item with the time when the job last began, by the clock of the process that ran
// it.
const lastRun = "last"

// lead runs the job whenever the interval has passed since it last began, in any process.
func lead(
	ctx context.Context, lease *core.Lease, every time.Duration, job func(context.Context) (string, error),
) error {
	item, err := lease.Get(ctx, lastRun)
	if err != nil {
		return err
	}
	var wait time.Duration // 0 if it never ran
	if item != nil {
		last, err := time.Parse(time.RFC3339Nano, string(item.Value))
		if err != nil {
			return err
		}
		wait = min(time.Until(last.Add(every)), every) // a clock may be ahead
	}
	for {
		next := time.NewTimer(wait)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return nil
		}
		began := time.Now()
		report, err := job(ctx)
		if err != nil {
			return err
		}
		// In one step, under the fence: a former leader that comes late writes nothing.
		_, err = lease.Commit(lease.Context(), core.Put(lastRun, began.UTC().AppendFormat(nil, time.RFC3339Nano)),
			core.Append([]byte(report)))
		if err != nil {
			return err
		}
		wait = time.Until(began.Add(every))
	}
}
