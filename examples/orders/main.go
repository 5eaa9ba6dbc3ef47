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
	"net/netip"
	"net/url"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/fx"

	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/observe/tenurehttp"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
	"github.com/tenure-go/tenure/tenurefx"
)

func main() {
	path := flag.String("config", "orders.yaml", "the configuration file")
	listen := flag.String("listen", "127.0.0.1:8080", "where to serve, and where the other members reach this one")
	ops := flag.String("ops", "127.0.0.1:8081", "where to serve the board and the probes, to operators only")
	model := flag.String("model", "model.db", "the file of the read model, made if it is missing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, &config.LoadOptions{Path: *path}, *listen, *ops, *model)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o *config.LoadOptions, listen, ops, modelPath string) (err error) {
	c, err := config.Load(o)
	if err != nil {
		return err
	}
	m, err := openModel(ctx, modelPath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.db.Close()) }()
	l, err := listenOn(ctx, listen, ops)
	if err != nil {
		return err
	}
	fmt.Println("listening on http://" + l.requests.Addr().String())
	a := fx.New(app(c, l, m), fx.Supply(slog.Default()), fx.NopLogger, fx.StopTimeout(c.StopTimeout()))
	if err := a.Start(ctx); err != nil {
		return errors.Join(err, l.requests.Close(), l.ops.Close())
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

// Some information is only for operators, who therefore have a separate listener.
type listeners struct{ requests, ops net.Listener }

func listenOn(ctx context.Context, requests, ops string) (l listeners, err error) {
	if l.requests, err = (&net.ListenConfig{}).Listen(ctx, "tcp", requests); err != nil {
		return l, err
	}
	if l.ops, err = (&net.ListenConfig{}).Listen(ctx, "tcp", ops); err != nil {
		return l, errors.Join(err, l.requests.Close())
	}
	return l, nil
}

func app(c *config.Config, l listeners, m *model) fx.Option {
	return fx.Options(
		fx.Supply(c, m, l),
		// The servers start first and stop last, because they serve while the member's shards move
		// away.
		fx.Provide(newGateways),
		fx.Invoke(func(*gateways) {}),
		tenurefx.Backends(sqlite.Opener(), postgres.Opener()),
		fx.Provide(options, newService),
		tenurefx.Module(),
		tenurefx.Sharding(),
		tenurefx.Follower(),
		fx.Provide(
			func(s *service) tenurefx.ShardHandler { return tenurefx.ShardHandler(sharding.Slices(s.take)) },
			tenurefx.AsFollowing(func(m *model) tenurefx.Following {
				return tenurefx.Following{Name: "model", Applier: m.applier, Shards: []string{"orders-*"}}
			}),
		),
		fx.Invoke(routes),
	)
}

// The member's address, to which other members forward requests, is added to the configured
// options.
func options(c *config.Config, l listeners) *core.Options {
	o := c.Options()
	o.Meta = maps.Clone(o.Meta)
	if o.Meta == nil {
		o.Meta = map[string]string{}
	}
	o.Meta["http"] = "http://" + l.requests.Addr().String()
	return o
}

// Members may forward requests, with the clients' credentials, to this machine and to private
// networks. The members of this example run on one machine, and real members usually run in private
// networks. By default, package route forwards no requests to this machine.
func near(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && (ip.IsLoopback() || ip.IsPrivate())
}

// The gateways' handlers are set before the Manager runs, because the Manager's handler uses the
// Manager.
func routes(g *gateways, s *service, m *model, e *core.Elector, sm *sharding.Manager, r *sharding.Router, t *follower.Tailer) error {
	s.manager = sm
	place, err := route.NewHandler(e, r, http.HandlerFunc(s.place), &route.Options{
		Shard:   func(q *http.Request) (string, error) { return shardOf(r, q.PathValue("id")) },
		Forward: true,
		Allow:   near,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", place)
	mux.Handle("GET /orders/{id}", m.reads(r, t))
	mux.Handle("GET /model", http.HandlerFunc(m.all))
	requests, ops := http.Handler(mux), tenurehttp.Handler(e, &tenurehttp.Options{Sharding: sm.Picture})
	g.requests.handler.Store(&requests)
	g.ops.handler.Store(&ops)
	return nil
}

type gateways struct{ requests, ops *gateway }

func newGateways(lc fx.Lifecycle, sd fx.Shutdowner, l listeners) *gateways {
	return &gateways{newGateway(lc, sd, l.requests), newGateway(lc, sd, l.ops)}
}

type gateway struct {
	handler atomic.Pointer[http.Handler]
}

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
