// Package service makes a whole sharded service from one function and one file:
//
//	fx.New(service.Module("service.yaml", serve, postgres.Opener())).Run()
//
// The file chooses the backend and the shards. If it has the key listen, the process serves HTTP
// at that address. The board and the probes are below /tenure/ (package tenurehttp), and the
// metrics at /metrics (package tenureprom). The listener starts first and stops last, so that the
// probes work during the whole stop.
//
// The parts are those of package tenurefx. An application may add to them: hooks, followings,
// *sharding.Options for what a file cannot express, a *slog.Logger, and its own metrics in the
// prometheus.Registerer.
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

// Limits of the listener. The board sets a deadline for each part of its streams, and limits their
// number.
const (
	readTime     = 10 * time.Second // of a request
	writeTime    = 30 * time.Second // of an answer
	idleTime     = time.Minute      // between two requests
	shutdownTime = time.Second      // for requests under way when the process stops
	maxHeader    = 16 << 10         // bytes
	maxConns     = 256
	maxScrapes   = 4 // answers of /metrics under way; more get 503
)

// Module returns the service. Its member serves each of its shards with serve, on the backend that
// the file at path chooses among openers. If the file is invalid, fx reports it when the
// application is made. fx logs only its errors, and has stop_timeout to stop the application.
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

// failures makes fx log only its errors.
func failures(p struct {
	fx.In
	Logger *slog.Logger `optional:"true"`
}) fxevent.Logger {
	if p.Logger == nil {
		p.Logger = slog.Default()
	}
	l := &fxevent.SlogLogger{Logger: p.Logger}
	l.UseLogLevel(slog.LevelDebug) // of events that are no errors
	return l
}

// listener serves the board, the probes and the metrics at an address.
func listener(address string) fx.Option {
	mux, metrics := http.NewServeMux(), prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	return fx.Options(
		// A hook that is appended before the Elector's stops after it.
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

// serving runs a server from start to stop.
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
