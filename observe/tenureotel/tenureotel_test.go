package tenureotel_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/observe/tenureotel"
	"github.com/tenure-go/tenure/sharding"
)

const ttl = time.Second

// collected is what an SDK has of one Telemetry.
type collected struct {
	*tenureotel.Telemetry
	spans   *tracetest.SpanRecorder
	tracing *sdktrace.TracerProvider
	reader  *sdkmetric.ManualReader
}

func collect(t *testing.T, o tenureotel.Options) *collected {
	t.Helper()
	c := &collected{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	c.tracing = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(c.spans))
	o.TracerProvider = c.tracing
	o.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(c.reader))
	var err error
	if c.Telemetry, err = tenureotel.New(&o); err != nil {
		t.Fatal(err)
	}
	return c
}

// points are the sums of each metric, with "{value}" of its attributes for each point.
func (c *collected) points(t *testing.T) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := c.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	put := func(name string, set attribute.Set, v float64) {
		got[name] += v
		for _, kv := range set.ToSlice() {
			got[name+"{"+kv.Value.String()+"}"] += v
		}
	}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, float64(p.Count))
				}
			default:
				t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	return got
}

// run has a member with one lease, calls f with it, and ends the member.
func run(t *testing.T, c *collected, f func(t *testing.T, l *core.Lease, link *kvfault.Link)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		link := &kvfault.Link{}
		b, err := memory.Open(t.Context(), memory.New(), "test", &memory.Options{Wrap: link.Wrap})
		if err != nil {
			t.Fatal(err)
		}
		b.Certificate = &driver.Certificate{}
		b.Certificate.Note(&tls.Config{Certificates: []tls.Certificate{{Leaf: &x509.Certificate{NotAfter: time.Unix(2_000_000_000, 0)}}}})
		e, err := core.NewElector(b, &core.Options{
			Node: "a", TTL: ttl, CallTimeout: ttl, Hooks: c.Hooks(), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Watch(e); err != nil {
			t.Fatal(err)
		}
		leases := make(chan *core.Lease, 1)
		hold := func(ctx context.Context, l *core.Lease) error { leases <- l; <-ctx.Done(); return nil }
		if err := e.Contend(hold, "eu"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		l := <-leases
		time.Sleep(ttl)
		f(t, l, link)
		cancel()
		if err := errors.Join(<-ended, b.Close()); err != nil {
			t.Error(err)
		}
	})
}

func attr(s sdktrace.ReadOnlySpan, key string) string {
	for _, kv := range s.Attributes() {
		if string(kv.Key) == key {
			return kv.Value.String()
		}
	}
	return ""
}

// A call to the store is a span below that of the caller; what the member does by itself
// has none.
func TestCallsAreSpansBelowTheCallers(t *testing.T) {
	t.Parallel()
	c := collect(t, tenureotel.Options{Attributes: []attribute.KeyValue{attribute.String("namespace", "test")}})
	tracer := c.tracing.Tracer("test")
	run(t, c, func(t *testing.T, l *core.Lease, link *kvfault.Link) {
		ctx, span := tracer.Start(t.Context(), "caller")
		if _, err := l.Append(ctx, nil); err != nil {
			t.Error(err)
		}
		if _, err := l.Get(ctx, "key"); err != nil {
			t.Error(err)
		}
		span.End()
		if _, err := l.Append(t.Context(), nil); err != nil { // nobody traces it
			t.Error(err)
		}
		link.SetError(kvfault.Read, errors.New("connection reset"))
		failed, span := tracer.Start(t.Context(), "failing caller")
		if _, err := l.Get(failed, "key"); err == nil {
			t.Error("a read without a store succeeds")
		}
		span.End()
		link.Heal()
		// Those that come while one is under way travel together.
		link.Set(kvfault.Write, kvfault.HoldRequest)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				ctx, span := tracer.Start(t.Context(), "one of several")
				defer span.End()
				if _, err := l.Append(ctx, nil); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		if err := link.AwaitHeld(t.Context(), 1); err != nil {
			t.Error(err)
		}
		link.Heal()
		all.Wait()
	})
	parents := make(map[string]string)
	for _, s := range c.spans.Ended() {
		parents[s.SpanContext().SpanID().String()] = s.Name()
	}
	var got []string
	links := 0
	for _, s := range c.spans.Ended() {
		if attr(s, "tenure.operation") == "" {
			continue
		}
		parent := parents[s.Parent().SpanID().String()]
		got = append(got, s.Name()+" below "+parent)
		links += len(s.Links())
		if attr(s, "tenure.shard") != "eu" || attr(s, "namespace") != "test" {
			t.Errorf("%s: attributes %v", s.Name(), s.Attributes())
		}
		bad := parent == "failing caller"
		if bad != (s.Status().Code == codes.Error) || bad != (attr(s, "tenure.outcome") != "ok") {
			t.Errorf("%s below %s: status %v, outcome %s", s.Name(), parent, s.Status(), attr(s, "tenure.outcome"))
		}
	}
	want := []string{
		"tenure commit below caller", "tenure commit below one of several",
		"tenure get below caller", "tenure get below failing caller",
	}
	slices.Sort(got)
	got = slices.Compact(got) // one that was sent again has a span each time
	if !slices.Equal(got, want) || links != 1 {
		t.Errorf("%d links, want 1, of spans\n%q, want\n%q", links, got, want)
	}
}

func TestBackground(t *testing.T) {
	t.Parallel()
	c := collect(t, tenureotel.Options{Background: true})
	run(t, c, func(*testing.T, *core.Lease, *kvfault.Link) {})
	kinds := make(map[string]int)
	for _, s := range c.spans.Ended() {
		kinds[attr(s, "tenure.operation")]++
	}
	for _, want := range []string{"join", "beat", "acquire", "release", "close"} {
		if kinds[want] == 0 {
			t.Errorf("no span of %s: %v", want, kinds)
		}
	}
}

// Every metric is observed, under the name and no other that the package comment has.
func TestMetrics(t *testing.T) {
	t.Parallel()
	c := collect(t, tenureotel.Options{})
	stats := &effect.Stats{}
	if err := c.Effects(stats); err != nil {
		t.Fatal(err)
	}
	var during map[string]float64
	run(t, c, func(t *testing.T, l *core.Lease, _ *kvfault.Link) {
		waitingEffect(t, l, stats)
		during = c.points(t)
	})
	for name, want := range map[string]float64{
		"tenure.client_certificate.end": 2_000_000_000, "tenure.leases{held}": 1, "tenure.leases{stuck}": 0, "tenure.member.state{trusted}": 1,
		"tenure.member.state{halted}": 0, "tenure.member.state{leaving}": 0, "tenure.member.state{eligible}": 1, "tenure.members{live}": 1, "tenure.shards{known}": 1, "tenure.shards{unowned}": 0, "tenure.shards{quarantined}": 0,
		"tenure.leases.granted": 1, "tenure.effects{unresolved}": 1, "tenure.effects{in doubt}": 0, "tenure.effects.oldest{unresolved}": 60,
		"tenure.effects.begun": 3, "tenure.effects.ended{done}": 1, "tenure.effects.ended{failed}": 0, "tenure.effects.ended{refused}": 1,
		"tenure.effects.retries": 1, "tenure.effects.full": 1,
	} {
		if got, ok := during[name]; got != want || !ok {
			t.Errorf("%s is %v, %v, want %v", name, got, ok, want)
		}
	}
	if during["tenure.trust.remaining"] <= 0 || during["tenure.store.call.duration{beat}"] == 0 {
		t.Errorf("%v trust remains, %v heartbeats", during["tenure.trust.remaining"],
			during["tenure.store.call.duration{beat}"])
	}
	h, f := c.Hooks(), c.FollowerHooks()
	h.OnPeer(core.PeerEvent{Kind: core.PeerSilent, Peer: core.Member{Session: "P", TTL: ttl}})
	h.OnGrant(core.LeaseEvent{Former: "P"})
	h.OnStuck(nil)
	h.OnRefused(nil)
	h.OnHandlerReturn(core.LeaseEvent{Err: errors.New("boom")})
	h.OnHandlerReturn(core.LeaseEvent{Err: errors.New("stopping"), Asked: true})
	h.OnSettled(core.Settled{Outcome: core.LeaseTransferred, Took: ttl})
	h.OnDropped(core.Dropped{Events: 3})
	f.OnApply(follower.Applied{Applier: "x", Entries: 4})
	f.OnError(follower.Failure{Applier: "x"})
	f.OnRestore(follower.Restored{Applier: "x"})
	c.Refused(&fence.RefusedError{})
	c.Planned(&sharding.Outcome{Moves: []sharding.Move{{Why: sharding.Drained}}})
	if err := c.Follow(behind{}); err != nil {
		t.Fatal(err)
	}
	after := c.points(t)
	for name, want := range map[string]float64{
		"tenure.leases.settled{released}": 1, "tenure.leases.settled{transferred}": 1, "tenure.leases.ended{asked to stop}": 1,
		"tenure.takeover.duration": 1, "tenure.handlers.failed": 1, "tenure.hooks.dropped": 3, "tenure.writes.refused": 2,
		"tenure.follower.applied{x}": 4, "tenure.follower.lag": 2, "tenure.plan.moves": 1, "tenure.member.state{leaving}": 1,
		"tenure.session.events{joined}": 1, "tenure.peer.events{silent}": 1, "tenure.effects": 0, "tenure.effects.oldest": 0,
	} {
		if got, ok := after[name]; got != want || !ok {
			t.Errorf("%s is %v, %v, want %v", name, got, ok, want)
		}
	}
	names := make(map[string]bool)
	for name := range after {
		names[regexp.MustCompile(`\{.*`).ReplaceAllString(name, "")] = true
	}
	doc, err := os.ReadFile("tenureotel.go")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^//\t(tenure\.[\w.]+)`).FindAllStringSubmatch(string(doc), -1) {
		documented[m[1]] = true
	}
	if !maps.Equal(names, documented) {
		t.Errorf("metrics %q\n\n documented %q", slices.Sorted(maps.Keys(names)), slices.Sorted(maps.Keys(documented)))
	}
}

// waitingEffect has a ledger make effects: one is done after a second attempt, one is refused, one waits
// for a person for a minute, and another is not begun.
func waitingEffect(t *testing.T, lease *core.Lease, s *effect.Stats) {
	t.Helper()
	l, err := effect.Open(t.Context(), lease, &effect.Options{Stats: s, MaxInDoubt: 1, BackoffMin: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string][]error{"a": {effect.NotDone(errors.New("busy")), nil}, "b": {effect.Refused(errors.New("declined"))},
		"c": {errors.New("lost")}, "d": {nil}}
	for _, key := range []string{"a", "b", "c", "d"} {
		_, err := l.Do(t.Context(), key, func(context.Context, string) ([]byte, error) {
			fail := outcomes[key][0]
			outcomes[key] = outcomes[key][1:]
			return nil, fail
		})
		if (err == nil) != (key == "a") {
			t.Errorf("%s: %v", key, err)
		}
	}
	time.Sleep(time.Minute)
	t.Cleanup(l.Close)
}

// behind is a Tailer that lags.
type behind struct{}

func (behind) Lag() follower.Lag { return follower.Lag{Entries: 7, Time: 2 * time.Second} }

// A call that nobody traces costs no allocation.
func TestUntracedCallsAllocateNothing(t *testing.T) {
	start := collect(t, tenureotel.Options{}).Hooks().CallStart
	ctx := t.Context()
	if got := testing.AllocsPerRun(1000, func() {
		if _, end := start(ctx, core.Started{Kind: "commit", Items: 1, Shard: "eu"}); end != nil {
			t.Error("a span of a call that nobody traces")
		}
	}); got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}
