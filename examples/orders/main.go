package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/fx"

	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/corehttp"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
	"github.com/tenure-go/tenure/tenurefx"
)

func main() {
	path := flag.String("config", "orders.yaml", "the configuration file")
	listen := flag.String("listen", "127.0.0.1:8080", "where to serve, and where the other members reach this one")
	model := flag.String("model", "model.db", "the file of the read model, made if it is missing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, &config.LoadOptions{Path: *path}, *listen, *model)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run is one member, until ctx ends.
func run(ctx context.Context, o *config.LoadOptions, listen, modelPath string) (err error) {
	c, err := config.Load(o)
	if err != nil {
		return err
	}
	m, err := openModel(ctx, modelPath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.db.Close()) }()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening on http://" + l.Addr().String())
	a := fx.New(app(c, l, m), fx.Supply(slog.Default()), fx.NopLogger, fx.StopTimeout(c.StopTimeout()))
	if err := a.Start(ctx); err != nil {
		return errors.Join(err, l.Close())
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

func app(c *config.Config, l net.Listener, m *model) fx.Option {
	return fx.Options(
		fx.Supply(c, m, fx.Annotate(l, fx.As(new(net.Listener)))),
		// The server starts first and stops last: it serves while its shards leave.
		fx.Provide(newGateway),
		fx.Invoke(func(*gateway) {}),
		tenurefx.Backends(sqlite.Opener(), postgres.Opener()),
		fx.Provide(options, newService),
		tenurefx.Module(),
		tenurefx.Sharding(),
		tenurefx.Follower(),
		fx.Provide(
			func(s *service) tenurefx.ShardHandler { return s.serve },
			tenurefx.AsFollowing(func(m *model) tenurefx.Following {
				return tenurefx.Following{Name: "model", Applier: m.applier, Shards: []string{"orders-*"}}
			}),
		),
		fx.Invoke(routes),
	)
}

// options are those of the configuration, and the address that others forward to.
func options(c *config.Config, l net.Listener) *core.Options {
	o := c.Options()
	o.Meta = maps.Clone(o.Meta)
	if o.Meta == nil {
		o.Meta = map[string]string{}
	}
	o.Meta[route.DefaultAddressKey] = "http://" + l.Addr().String()
	return o
}

// routes has the gateway serve everything.
func routes(g *gateway, s *service, m *model, e *core.Elector, r *sharding.Router, t *follower.Tailer) error {
	place, err := route.NewHandler(e, r, http.HandlerFunc(s.place), &route.Options{
		Shard:   func(r *http.Request) (string, error) { return s.shard(r.PathValue("id")) },
		Forward: true,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", place)
	mux.Handle("GET /orders/{id}", m.reads(s, t))
	mux.Handle("GET /model", http.HandlerFunc(m.all))
	mux.Handle("/", corehttp.Handler(e, nil))
	var h http.Handler = mux
	g.handler.Store(&h)
	return nil
}

// gateway is the HTTP server.
type gateway struct {
	handler atomic.Pointer[http.Handler]
}

// Bounds of one request.
const (
	readLimit  = 10 * time.Second
	writeLimit = 30 * time.Second
)

func newGateway(lc fx.Lifecycle, sd fx.Shutdowner, l net.Listener) *gateway {
	g := &gateway{}
	s := &http.Server{ReadTimeout: readLimit, WriteTimeout: writeLimit,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if h := g.handler.Load(); h != nil {
				(*h).ServeHTTP(w, r)
				return
			}
			refuse(w, http.StatusServiceUnavailable, "the process is starting")
		})}
	done := make(chan error, 1)
	lc.Append(fx.Hook{
		OnStart: func(context.Context) error {
			go func() {
				err := s.Serve(l)
				if !errors.Is(err, http.ErrServerClosed) {
					err = errors.Join(err, sd.Shutdown(fx.ExitCode(1)))
				}
				done <- err
			}()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			err := s.Shutdown(ctx)
			if err != nil {
				err = errors.Join(err, s.Close())
			}
			if served := <-done; !errors.Is(served, http.ErrServerClosed) {
				err = errors.Join(err, served)
			}
			return err
		},
	})
	return g
}
