//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/observe/tenurehttp"
	"github.com/tenure-go/tenure/observe/tenureprom"
)

const (
	metricsEvery = 500 * time.Millisecond // time between two reports of a member's metrics
	metricsOld   = 6 * metricsEvery       // age from which the board assumes that the member has stopped
	webLimit     = 5 * time.Second        // time for each part to end
)

// A web serves the browser board and the metrics. To be independent of the members, a web follows
// the namespace with an Elector that contends for no shard. Heartbeats and metrics come from the
// members' reports. A nil web ignores reports. A web is safe for concurrent use.
type web struct {
	*core.Elector
	journal *tenurehttp.Journal
	metrics prometheus.Gatherer // metrics of the observer
	url     string
	server  *http.Server
	parts   []*part // the parts in the order in which they end

	mu      sync.Mutex
	beats   map[string]time.Time // beats by node label
	reports map[string]measures
}

type measures struct {
	at       time.Time
	families []*dto.MetricFamily
}

// startWeb listens on addr and shows the namespace of b.
func startWeb(ctx context.Context, addr string, b core.Backend, ttl time.Duration) (w *web, err error) {
	places, err := airportPlaces()
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("demo: -board: %w: use another address", err)
	}
	w = &web{journal: &tenurehttp.Journal{}, beats: map[string]time.Time{}, reports: map[string]measures{}}
	own := tenureprom.New(&tenureprom.Options{Labels: prometheus.Labels{"member": "observer"}})
	quiet := slog.New(slog.DiscardHandler)
	w.Elector, err = core.NewElector(b, &core.Options{
		Node: "observer", TTL: ttl, Hooks: core.JoinHooks(own.Hooks(), w.journal.Hooks()), Logger: quiet,
	})
	var tailer *follower.Tailer
	if err == nil {
		tailer, err = follower.NewTailer(b, &follower.Options{BackoffMax: ttl, OnEvent: own.FollowerEvent, Logger: quiet})
	}
	if err == nil {
		err = tailer.Follow("board", follower.Memory(func(context.Context, follower.Batch) error { return nil }, nil), "*")
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	own.Watch(w.Elector)
	own.Follow(tailer)
	registry := prometheus.NewRegistry()
	registry.MustRegister(own)
	w.metrics = registry
	mux := http.NewServeMux()
	mux.Handle("/metrics", tenurehttp.CheckHost(promhttp.HandlerFor(prometheus.GathererFunc(w.gather), promhttp.HandlerOpts{})))
	mux.Handle("/", tenurehttp.Handler(w, &tenurehttp.Options{
		Journal: w.journal, Places: places,
		Lag: func() (int64, time.Duration) { lag := tailer.Lag(); return lag.Entries, lag.Time },
	}))
	w.server = &http.Server{Handler: mux, ReadHeaderTimeout: webLimit, ErrorLog: slog.NewLogLogger(quiet.Handler(), 0)}
	w.url = "http://" + l.Addr().String() + "/"
	ended := make(chan *part, 3)
	w.parts = []*part{
		startPart("the board", func(ctx context.Context) error { return serveUntil(ctx, w.server, l) }, ended),
		startPart("the board's tailer", tailer.Run, ended), startPart("the board's elector", w.Elector.Run, ended),
	}
	return w, nil
}

// serveUntil serves until ctx ends, and then waits for requests in progress.
func serveUntil(ctx context.Context, s *http.Server, l net.Listener) error {
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.Background(), webLimit/2)
	defer cancel()
	err := s.Shutdown(late)
	if err != nil {
		err = s.Close()
	}
	<-done
	return err
}

func (w *web) close() error {
	if w == nil {
		return nil
	}
	return endParts(w.parts, webLimit)
}

func (w *web) say(text string) {
	if w != nil {
		w.journal.Add(tenurehttp.Note{Kind: tenurehttp.NoteOther, Text: text})
	}
}

func (w *web) hear(node string, e event) {
	if w == nil {
		return
	}
	switch e.Is {
	case isBeat:
		w.mu.Lock()
		w.beats[node] = time.Now()
		w.mu.Unlock()
	case isMeasured:
		p := expfmt.NewTextParser(model.UTF8Validation)
		families, err := p.TextToMetricFamilies(strings.NewReader(e.Metrics))
		if err != nil {
			return // the member ended in the middle of a line
		}
		w.mu.Lock()
		w.reports[node] = measures{time.Now(), slices.Collect(maps.Values(families))}
		w.mu.Unlock()
	case isAnswered:
		for _, late := range e.Writes {
			if late.Outcome == wasRefused {
				refused := &core.FencedError{Fence: core.Fence{Shard: core.ShardID(late.Airport), Token: core.Token(late.Token)}}
				refused.Current.Token = core.Token(late.Current)
				w.journal.Refused(refused)
			}
		}
	}
}

// gather returns the metrics of the observer and the running members.
func (w *web) gather() ([]*dto.MetricFamily, error) {
	all := prometheus.Gatherers{w.metrics}
	w.mu.Lock()
	for _, r := range w.reports {
		if time.Since(r.at) < metricsOld {
			all = append(all, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return r.families, nil }))
		}
	}
	w.mu.Unlock()
	return all.Gather()
}

// Heartbeats implements tenurehttp.Source. The ages come from the members' reports.
func (w *web) Heartbeats() map[core.SessionID]time.Duration {
	v := w.View()
	w.mu.Lock()
	defer w.mu.Unlock()
	ages := make(map[core.SessionID]time.Duration, len(v.Members))
	for i := range v.Members {
		if at, ok := w.beats[v.Members[i].Node]; ok {
			ages[v.Members[i].Session] = time.Since(at)
		}
	}
	return ages
}

// startMeasuring reports the member's metrics until the caller stops it.
func (m *member) startMeasuring() (stop func()) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.metrics)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { m.measure(ctx, registry) })
	return func() { cancel(); running.Wait() }
}

func (m *member) measure(ctx context.Context, g prometheus.Gatherer) {
	ticks := time.NewTicker(metricsEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		families, err := g.Gather()
		if err != nil {
			m.trouble("metrics", err)
			continue
		}
		var text strings.Builder
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				m.trouble("metrics", err)
			}
		}
		m.report(event{Is: isMeasured, Metrics: text.String()})
	}
}
