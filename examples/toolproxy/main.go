package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
)

func main() {
	db := flag.String("db", "tools.db", "the database file, made if it is missing")
	listen := flag.String("listen", "127.0.0.1:8700", "the address for agents")
	flag.Parse()
	tools := make(map[string]string)
	for _, arg := range flag.Args() {
		name, url, _ := strings.Cut(arg, "=")
		tools[name] = url
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *db, *listen, tools); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path, listen string, tools map[string]string) (err error) {
	b, err := sqlite.Open(ctx, path, "agents", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	e, err := core.NewElector(b, nil)
	if err != nil {
		return err
	}
	p := &proxy{tools: tools}
	if err := e.Contend(p.lead, "tools"); err != nil {
		return err
	}
	server := &http.Server{Addr: listen, Handler: p.routes(), ReadTimeout: 10 * time.Second}
	ctx, stop := context.WithCancelCause(ctx)
	go func() { stop(server.ListenAndServe()) }()
	defer func() { _ = server.Close() }()
	if err := e.Run(ctx); err != nil {
		return err
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
