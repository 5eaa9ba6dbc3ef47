// Package service makes a complete sharded service from one function and one configuration file:
//
//	fx.New(service.Module("service.yaml", serve, postgres.Opener())).Run()
//
// The file specifies the backend and the shards. If the file contains the key listen, the process
// serves HTTP at that address. The board and the probes are below /tenure/ (package tenurehttp),
// and the metrics are at /metrics (package tenureprom). The listener starts first and stops last,
// so the probes work until the shutdown is complete.
//
// The service consists of the parts of package tenurefx. An application may add hooks, followings,
// a *slog.Logger, and *sharding.Options for values that a file cannot express. The application may
// also register metrics with the prometheus.Registerer.
package service

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"golang.org/x/net/netutil"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/errtext"
	"github.com/tenure-go/tenure/observe/tenurehttp"
	"github.com/tenure-go/tenure/observe/tenureprom"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/tenurefx"
)

// These are the limits of the listener. The board sets a deadline for each part of a stream, and
// limits the number of streams.
const (
	readTime     = 10 * time.Second // time limit for reading a request
	writeTime    = 30 * time.Second // time limit for writing an answer
	idleTime     = time.Minute      // maximum time between two requests on a connection
	shutdownTime = time.Second      // time that requests in progress have when the process stops
	maxHeader    = 16 << 10         // maximum size of a request's header, in bytes
	maxConns     = 256
	maxScrapes   = 4 // maximum number of answers of /metrics in progress; further requests get 503
)

// Module returns the service. The function serve handles each shard of this member, on the backend
// that the file at path selects from openers. If the file is invalid, fx.App.Err returns the error.
// Fx logs only its errors, and stops the application within stop_timeout.
func Module(path string, serve core.Handler, openers ...core.Opener) fx.Option {
	c, err := config.Load(&config.LoadOptions{Path: path})
	if err != nil {
		return fx.Error(err)
	}
	parts := []fx.Option{
		fx.WithLogger(failures), fx.StopTimeout(c.StopTimeout()), fx.Supply(c, tenurefx.ShardHandler(serve)),
	}
	if address := c.Listen(); address != "" {
		parts = append(parts, listener(address))
	}
	return fx.Options(append(parts, tenurefx.Backends(openers...), tenurefx.Module(), tenurefx.Sharding())...)
}

// failures makes fx log only errors.
func failures(p struct {
	fx.In
	Logger *slog.Logger `optional:"true"`
}) fxevent.Logger {
	if p.Logger == nil {
		p.Logger = slog.Default()
	}
	l := &fxevent.SlogLogger{Logger: p.Logger}
	l.UseLogLevel(slog.LevelDebug) // the level of events that are not errors
	return l
}

// listener serves the board, the probes and the metrics at an address.
func listener(address string) fx.Option {
	mux, metrics := http.NewServeMux(), prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	return fx.Options(
		// The module appends this hook before the Elector's hook, so the listener stops last.
		fx.Module("tenure-listener", fx.Invoke(func(lc fx.Lifecycle, p struct {
			fx.In
			Logger *slog.Logger `optional:"true"`
		}) {
			lc.Append(serving(address, mux, p.Logger))
		})),
		fx.Provide(
			func() prometheus.Registerer { return metrics },
			func() *tenurehttp.Journal { return new(tenurehttp.Journal) },
			tenurefx.AsHooks(func(j *tenurehttp.Journal) core.Hooks { return j.Hooks() }),
		),
		tenureprom.Module(nil),
		fx.Invoke(func(e *core.Elector, m *sharding.Manager, j *tenurehttp.Journal) {
			board := tenurehttp.Handler(e, &tenurehttp.Options{Journal: j, Sharding: m.Picture})
			mux.Handle("/tenure/", http.StripPrefix("/tenure", board))
		}),
	)
}

func serving(address string, h http.Handler, log *slog.Logger) fx.Hook {
	if log == nil {
		log = slog.Default()
	}
	s := &http.Server{Handler: h, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	ended := make(chan error, 1)
	return fx.Hook{
		OnStart: func(ctx context.Context) error {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
			if err != nil {
				return errtext.Errorf("tenure: listen: %w", err)
			}
			log.Info("tenure: serving the board and the metrics", slog.String("board", "http://"+l.Addr().String()+"/tenure/"))
			go func() {
				err := s.Serve(netutil.LimitListener(l, maxConns))
				if !errors.Is(err, http.ErrServerClosed) {
					log.Error("tenure: the board and the metrics are no longer served", slog.Any("error", err))
				}
				ended <- err
			}()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, shutdownTime)
			defer cancel()
			err := s.Shutdown(ctx)
			if err != nil {
				err = s.Close() // a request took too long
			}
			if failed := <-ended; !errors.Is(failed, http.ErrServerClosed) {
				err = errors.Join(err, errtext.Errorf("tenure: listen: %w", failed))
			}
			return err
		},
	}
}
