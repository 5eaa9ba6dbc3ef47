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
	"github.com/tenure-go/tenure/sharding/assign"
)

const ttl = time.Second

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

// points returns the sum of each point of each metric. A point's name includes its attributes as
// "{value}".
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

// run starts a member with one lease, calls f with the lease, and stops the member.
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

// A call to the store is a child of the caller's span. Calls that no caller requested have no span.
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
		if _, err := l.Append(t.Context(), nil); err != nil { // nobody traces this call
			t.Error(err)
		}
		link.SetError(kvfault.Read, errors.New("connection reset"))
		failed, span := tracer.Start(t.Context(), "failing caller")
		if _, err := l.Get(failed, "key"); err == nil {
			t.Error("a read without a store succeeds")
		}
		span.End()
		link.Heal()
		// Commits that arrive while another commit is in progress are sent together.
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
	got = slices.Compact(got) // a repeated call has a span for each attempt
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

// Exactly the metrics that the package comment lists are observed, under the listed names.
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
	h := c.Hooks()
	for _, e := range []core.Event{
		{Kind: core.PeerSilent, Peer: core.Member{Session: "P", TTL: ttl}}, {Kind: core.LeaseGranted, Session: "P"},
		{Kind: core.HandlerStuck}, {Kind: core.WriteRefused}, {Kind: core.HandlerReturned, Err: errors.New("boom")},
		{Kind: core.HandlerReturned}, {Kind: core.LeaseTransferred, Took: ttl},
		{Kind: core.EventsDropped, Dropped: 3},
	} {
		h.OnEvent(e)
	}
	c.FollowerEvent(follower.Event{Kind: follower.Applied, Applier: "x", Count: 4})
	c.FollowerEvent(follower.Event{Kind: follower.Failed, Applier: "x"})
	c.FollowerEvent(follower.Event{Kind: follower.Restored, Applier: "x"})
	c.Refused(&fence.RefusedError{})
	c.Planned(&sharding.Outcome{Moves: []assign.Move{{Why: assign.Drained}}})
	lag := func() follower.Lag { return follower.Lag{Entries: 7, Time: 2 * time.Second} }
	if err := tenureotel.Follow(c.Telemetry, lag); err != nil {
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

// waitingEffect requests four effects from a ledger. One effect is done after a second attempt, one
// is refused, one waits a minute for a person, and one is not begun.
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

// An untraced call costs no allocation.
func TestUntracedCallsAllocateNothing(t *testing.T) {
	start := collect(t, tenureotel.Options{}).Hooks().CallStart
	ctx := t.Context()
	if got := testing.AllocsPerRun(1000, func() {
		if _, end := start(ctx, core.Call{Kind: "commit", Items: 1, Shard: "eu"}); end != nil {
			t.Error("a span of a call that nobody traces")
		}
	}); got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}
