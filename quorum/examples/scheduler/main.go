// Command scheduler runs a job each second in one of three processes, which need no other program:
// together they are the store. In this folder, start each of the following commands in a terminal
// of its own:
//
//	go run . -create a
//	go run . -create b
//	go run . -create c
//
// Then end one of the processes with kill -9. If it ran the job, another process continues after
// the TTL. Start the process again without -create. The members' data is below the folder data.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/fx"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/quorum"
	"github.com/tenure-go/tenure/tenurefx"
)

func main() {
	path := flag.String("config", "scheduler.yaml", "the configuration file")
	data := flag.String("data", "data", "the folder of the members' data")
	create := flag.Bool("create", false, "allow an empty data folder, for the first start only")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: scheduler [flags] NAME, where NAME is a member in the configuration")
	}
	// These settings differ between the processes.
	own := []string{"TENURE__NODE=" + flag.Arg(0), "TENURE__BACKENDS__QUORUM__NAME=" + flag.Arg(0),
		"TENURE__BACKENDS__QUORUM__DIR=" + filepath.Join(*data, flag.Arg(0)),
		fmt.Sprint("TENURE__BACKENDS__QUORUM__CREATE=", *create)}
	c, err := config.Load(&config.LoadOptions{Path: *path, Environ: append(os.Environ(), own...)})
	if err != nil {
		log.Fatal(err)
	}
	fx.New(
		fx.Supply(c),
		fx.NopLogger,
		fx.StopTimeout(c.StopTimeout()),
		fx.StartTimeout(15*time.Minute),
		tenurefx.Backends(quorum.Opener()),
		tenurefx.Module(),
		fx.Provide(tenurefx.AsElection(func() tenurefx.Election {
			return tenurefx.Election{Shards: []string{"job"}, Handler: lead}
		})),
	).Run()
}

// lead runs the job each second until it loses the lease. The store accepts an entry only from the
// current leader.
func lead(ctx context.Context, lease *core.Lease) error {
	for {
		n, err := lease.Append(ctx, []byte(time.Now().Format(time.RFC3339)))
		if err != nil {
			return err
		}
		fmt.Printf("run %d\n", n)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}
