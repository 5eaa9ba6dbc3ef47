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

// One value in the configuration selects the backend.
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

// This item contains the time when the job last began, according to the clock of the process that
// ran the job.
const lastRun = "last"

// The leader runs the job when the interval has passed since any process last began it.
func lead(
	ctx context.Context, lease *core.Lease, every time.Duration, job func(context.Context) (string, error),
) error {
	item, err := lease.Get(ctx, lastRun)
	if err != nil {
		return err
	}
	var wait time.Duration // 0 if the job never ran
	if item != nil {
		last, err := time.Parse(time.RFC3339Nano, string(item.Value))
		if err != nil {
			return err
		}
		wait = min(time.Until(last.Add(every)), every) // a former leader's clock may have been ahead
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
		// The commit is a single step under the fence, so a late former leader writes nothing.
		_, err = lease.Commit(lease.Context(), core.Put(lastRun, began.UTC().AppendFormat(nil, time.RFC3339Nano)),
			core.Append([]byte(report)))
		if err != nil {
			return err
		}
		wait = time.Until(began.Add(every))
	}
}
