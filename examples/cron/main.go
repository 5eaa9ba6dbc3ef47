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

// app is the whole application: one value of its configuration chooses the backend.
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
				for tick := time.Tick(every); ; {
					report, err := job(ctx)
					if err == nil { // in one step, under the fence
						_, err = lease.Commit(lease.Context(), core.Put("last", []byte(report)),
							core.Append([]byte(report)))
					}
					if err != nil {
						return err
					}
					select {
					case <-tick:
					case <-ctx.Done():
						return nil
					}
				}
			}}
		})),
	)
}
