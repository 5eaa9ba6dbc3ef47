// Package tenureotel exports spans and metrics of an Elector, and of the packages used with it, to
// OpenTelemetry. The package depends on the OpenTelemetry API, but not on the SDK.
//
//	telemetry, err := tenureotel.New(nil)
//	o.Hooks = core.JoinHooks(o.Hooks, telemetry.Hooks())
//	elector, err := core.NewElector(backend, o)
//	err = telemetry.Watch(elector)
//
// Each call to the store is a span, such as "tenure commit". The parent is the span in the context
// that the caller passed to Lease.Commit, Append, Get, List or ReadLog. If one call carries the
// commits of several callers, the parent is the first caller's span, and the new span links to the
// other callers' spans. Calls that no caller requested, such as heartbeats, have spans below the
// span in Run's context. If Run's context has no span, these calls have spans only if
// Options.Background is set.
//
// These are the metrics, with their attributes and units:
//
//	tenure.store.call.duration {operation, outcome}  s; outcome is ok, refused or unknown
//	tenure.takeover.duration                         s; from the former owner's last sign of life
//	tenure.handover.duration {outcome}               s; from asking the handler to stop
//	tenure.leases.granted
//	tenure.leases.ended {cause}
//	tenure.leases.settled {outcome}                  released, transferred, lost, refused or unknown
//	tenure.session.events {event}                    core.SessionJoined, ...
//	tenure.peer.events {event}                       core.PeerJoined, ..., without "peer "
//	tenure.writes.refused {where}                    store, or fence for writes outside the store
//	tenure.handlers.stuck
//	tenure.handlers.failed
//	tenure.hooks.dropped
//	tenure.plans
//	tenure.plan.moves {reason}                       assign.Reason
//	tenure.follower.applied {applier}                entries
//	tenure.follower.failures {applier}
//	tenure.follower.restores {applier}
//	tenure.follower.lag                              s; lag of the shard that is furthest behind
//	tenure.follower.behind                           entries; sum of all shards
//	tenure.member.state {state}                      1 or 0: joined, trusted, halted, leaving, eligible
//	tenure.trust.remaining                           s
//	tenure.client_certificate.end                    s, since the epoch
//	tenure.members {state}                           live, silent, troubled
//	tenure.shards {state}                            known, contended, unowned, unowned_reserved, quarantined
//	tenure.leases {state}                            core.LeaseState
//	tenure.effects {state}                           waiting effects: in doubt, or unresolved (waiting for a person)
//	tenure.effects.oldest {state}                    s; time since the oldest waiting effect began
//	tenure.effects.begun
//	tenure.effects.ended {outcome}                   done, failed or refused
//	tenure.effects.retries                           attempts after an effect's first
//	tenure.effects.full                              calls of Do refused because too many are in doubt
package tenureotel

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/observe/internal/count"
	"github.com/tenure-go/tenure/observe/internal/takeover"
	"github.com/tenure-go/tenure/sharding"
)

const scope = "github.com/tenure-go/tenure/observe/tenureotel"

// Options configure a Telemetry. Nil means the defaults.
type Options struct {
	// TracerProvider and MeterProvider default to the global providers.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Attributes are added to each span and metric. If a process has several Electors, the
	// attributes should distinguish them, for example by namespace.
	Attributes []attribute.KeyValue
	// Background enables spans without parents for calls that no caller requested.
	Background bool
}

// Telemetry creates the spans and metrics of one Elector. A Telemetry is safe for concurrent use.
type Telemetry struct {
	tracer     trace.Tracer
	meter      metric.Meter
	own        []attribute.KeyValue
	background bool
	ended      takeover.Times

	calls, takeovers, handovers                                                 metric.Float64Histogram
	granted, endedBy, settled, sessions, peers, refused, stuck, failed, dropped metric.Int64Counter
	plans, moves, applied, failures, restores                                   metric.Int64Counter
	member, members, shards, leases, behind                                     metric.Int64ObservableGauge
	remaining, lag, certificate                                                 metric.Float64ObservableGauge
}

// New returns a Telemetry, or an error from the MeterProvider. Nil options mean the defaults.
func New(o *Options) (*Telemetry, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	t := &Telemetry{
		tracer: c.TracerProvider.Tracer(scope), meter: c.MeterProvider.Meter(scope),
		own: c.Attributes, background: c.Background,
	}
	var errs []error
	seconds := func(into *metric.Float64Histogram, name, text string) {
		h, err := t.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text),
			metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60))
		*into, errs = h, append(errs, err)
	}
	count := func(into *metric.Int64Counter, name, text string) {
		c, err := t.meter.Int64Counter(name, metric.WithDescription(text))
		*into, errs = c, append(errs, err)
	}
	number := func(into *metric.Int64ObservableGauge, name, text string) {
		g, err := t.meter.Int64ObservableGauge(name, metric.WithDescription(text))
		*into, errs = g, append(errs, err)
	}
	length := func(into *metric.Float64ObservableGauge, name, text string) {
		g, err := t.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(text))
		*into, errs = g, append(errs, err)
	}
	seconds(&t.calls, "tenure.store.call.duration", "Calls to the store.")
	seconds(&t.takeovers, "tenure.takeover.duration", "From the former owner's last sign of life to the grant.")
	seconds(&t.handovers, "tenure.handover.duration",
		"From asking the handler to stop to the change of the store's record.")
	count(&t.granted, "tenure.leases.granted", "Leases granted to this member.")
	count(&t.endedBy, "tenure.leases.ended", "Leases of this member that ended.")
	count(&t.settled, "tenure.leases.settled", "How leases of this member ended in the store.")
	count(&t.sessions, "tenure.session.events", "What happened to the own session.")
	count(&t.peers, "tenure.peer.events", "What happened to other members.")
	count(&t.refused, "tenure.writes.refused", "Writes refused by their fence.")
	count(&t.stuck, "tenure.handlers.stuck", "Handlers that did not return in time.")
	count(&t.failed, "tenure.handlers.failed", "Handlers that returned an error by themselves.")
	count(&t.dropped, "tenure.hooks.dropped", "Events lost since hooks were too slow.")
	count(&t.plans, "tenure.plans", "Plans that this member wrote.")
	count(&t.moves, "tenure.plan.moves", "Shards moved by plans of this member.")
	count(&t.applied, "tenure.follower.applied", "Entries applied.")
	count(&t.failures, "tenure.follower.failures", "Failures of the store or an Applier.")
	count(&t.restores, "tenure.follower.restores", "Snapshots restored.")
	number(&t.member, "tenure.member.state", "1 or 0 for each state of this member.")
	number(&t.members, "tenure.members", "Members, as this one sees them.")
	number(&t.shards, "tenure.shards", "Shards, as this member sees them.")
	number(&t.leases, "tenure.leases", "Leases of this member.")
	number(&t.behind, "tenure.follower.behind", "Entries known and not applied.")
	length(&t.certificate, "tenure.client_certificate.end", "Earliest end of the client certificates of the store, since the epoch.")
	length(&t.remaining, "tenure.trust.remaining", "Until the leases end if no heartbeat succeeds any more.")
	length(&t.lag, "tenure.follower.lag", "How far the furthest shard is behind.")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Telemetry) with(key, value string) metric.MeasurementOption {
	all := append(t.own[:len(t.own):len(t.own)], attribute.String(key, value))
	return metric.WithAttributes(all...)
}

func (t *Telemetry) add(c metric.Int64Counter, n int, o metric.MeasurementOption) {
	c.Add(context.Background(), int64(n), o)
}

// Hooks returns hooks for core.Options. Use core.JoinHooks to combine these hooks with other hooks.
func (t *Telemetry) Hooks() core.Hooks {
	return core.Hooks{
		OnEvent: t.onEvent,
		OnCall: func(c core.Call) {
			t.calls.Record(context.Background(), c.Took.Seconds(), t.with("operation", c.Kind), metric.WithAttributes(outcomeOf(c.Err)))
		},
		CallStart: t.callStart,
	}
}

func (t *Telemetry) onEvent(e core.Event) {
	ctx, none := context.Background(), metric.WithAttributes(t.own...)
	switch e.Kind {
	case core.LeaseGranted:
		t.add(t.granted, 1, none)
		if took, ok := t.ended.Took(e); ok {
			t.takeovers.Record(ctx, took.Seconds(), none)
		}
	case core.LeaseEnded:
		if r, ok := errors.AsType[*core.RevokedError](e.Err); ok {
			t.add(t.endedBy, 1, t.with("cause", r.Cause))
		}
	case core.HandlerReturned:
		if e.Err != nil {
			t.add(t.failed, 1, none)
		}
	case core.HandlerStuck:
		t.add(t.stuck, 1, none)
	case core.WriteRefused:
		t.add(t.refused, 1, t.with("where", "store"))
	case core.LeaseReleased, core.LeaseTransferred, core.LeaseLost, core.LeaseRefused, core.LeaseUnknown:
		outcome := t.with("outcome", string(e.Kind))
		t.add(t.settled, 1, outcome)
		if e.Took > 0 {
			t.handovers.Record(ctx, e.Took.Seconds(), outcome)
		}
	case core.EventsDropped:
		t.add(t.dropped, e.Dropped, none)
	case core.HandlerStarted, core.HandlerStopping, core.RecordDamaged: // not counted
	default:
		if peer, ok := strings.CutPrefix(string(e.Kind), "peer "); ok {
			t.ended.Peer(e)
			t.add(t.peers, 1, t.with("event", peer))
		} else {
			t.add(t.sessions, 1, t.with("event", string(e.Kind)))
		}
	}
}

func outcomeOf(err error) attribute.KeyValue {
	outcome := "ok"
	switch {
	case core.NotApplied(err):
		outcome = "refused"
	case err != nil:
		outcome = "unknown"
	}
	return attribute.String("outcome", outcome)
}

func (t *Telemetry) callStart(ctx context.Context, c core.Call) (context.Context, func(error)) {
	if !t.background && !trace.SpanContextFromContext(ctx).IsValid() {
		linked := false
		for _, other := range c.Others {
			linked = linked || trace.SpanContextFromContext(other).IsValid()
		}
		if !linked {
			return ctx, nil
		}
	}
	attrs := append(t.own[:len(t.own):len(t.own)], attribute.String("tenure.operation", c.Kind))
	if c.Items > 0 {
		attrs = append(attrs, attribute.Int("tenure.items", c.Items))
	}
	if c.Shard != "" {
		attrs = append(attrs, attribute.String("tenure.shard", c.Shard))
	}
	var links []trace.Link
	for _, other := range c.Others {
		if trace.SpanContextFromContext(other).IsValid() {
			links = append(links, trace.LinkFromContext(other))
		}
	}
	ctx, span := t.tracer.Start(ctx, "tenure "+c.Kind, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attrs...), trace.WithLinks(links...))
	return ctx, func(err error) {
		span.SetAttributes(attribute.String("tenure.outcome", outcomeOf(err).Value.AsString()))
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Refused counts a refused write. Use this method as an OnRefused function in package fence.
func (t *Telemetry) Refused(*fence.RefusedError) { t.add(t.refused, 1, t.with("where", "fence")) }

// Planned counts a plan and its moves. Use this method as sharding.Options.OnPlan.
func (t *Telemetry) Planned(o *sharding.Outcome) {
	t.add(t.plans, 1, metric.WithAttributes(t.own...))
	for i := range o.Moves {
		t.add(t.moves, 1, t.with("reason", o.Moves[i].Why.String()))
	}
}

// FollowerEvent counts a Tailer's event. Use this method as follower.Options.OnEvent.
func (t *Telemetry) FollowerEvent(e follower.Event) {
	switch e.Kind {
	case follower.Applied:
		t.add(t.applied, e.Count, t.with("applier", e.Applier))
	case follower.Restored:
		t.add(t.restores, 1, t.with("applier", e.Applier))
	case follower.Failed:
		t.add(t.failures, 1, t.with("applier", e.Applier))
	case follower.Reset: // not counted
	}
}

// Follow observes a Tailer's lag. An error comes from the MeterProvider.
func (t *Telemetry) Follow(f *follower.Tailer) error { return t.follow(f.Lag) }

func (t *Telemetry) follow(lag func() follower.Lag) error {
	none := metric.WithAttributes(t.own...)
	_, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		l := lag()
		o.ObserveInt64(t.behind, l.Entries, none)
		o.ObserveFloat64(t.lag, l.Time.Seconds(), none)
		return nil
	}, t.behind, t.lag)
	return err
}

// Effects observes this process's effects. All of this process's ledgers must share these Stats
// (effect.Options.Stats). An error comes from the MeterProvider.
func (t *Telemetry) Effects(s *effect.Stats) error {
	var errs []error
	count := func(name, text string) metric.Int64ObservableCounter {
		c, err := t.meter.Int64ObservableCounter(name, metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	waiting, err := t.meter.Int64ObservableGauge("tenure.effects",
		metric.WithDescription("Effects that wait: in doubt, or unresolved, which a person decides."))
	errs = append(errs, err)
	oldest, err := t.meter.Float64ObservableGauge("tenure.effects.oldest", metric.WithUnit("s"),
		metric.WithDescription("Since the oldest effect that waits began."))
	errs = append(errs, err)
	begun := count("tenure.effects.begun", "Effects whose intent was written.")
	ended := count("tenure.effects.ended", "Effects that ended.")
	retries := count("tenure.effects.retries", "Attempts after an effect's first.")
	full := count("tenure.effects.full", "Calls that began no effect, as too many are in doubt.")
	if err := errors.Join(errs...); err != nil {
		return err
	}
	none := metric.WithAttributes(t.own...)
	_, err = t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		c := s.Counts()
		for state, w := range map[string]effect.Waiting{"in doubt": c.InDoubt, "unresolved": c.Unresolved} {
			o.ObserveInt64(waiting, int64(w.Number), t.with("state", state))
			o.ObserveFloat64(oldest, w.Age().Seconds(), t.with("state", state))
		}
		for outcome, n := range map[string]uint64{"done": c.Done, "failed": c.Failed, "refused": c.Refused} {
			o.ObserveInt64(ended, int64(n), t.with("outcome", outcome))
		}
		o.ObserveInt64(begun, int64(c.Begun), none)
		o.ObserveInt64(retries, int64(c.Retries), none)
		o.ObserveInt64(full, int64(c.Full), none)
		return nil
	}, waiting, oldest, begun, ended, retries, full)
	return err
}

// Watch observes an Elector's View. An error comes from the MeterProvider.
func (t *Telemetry) Watch(e *core.Elector) error {
	_, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		t.observe(o, e.View(), e.TrustRemaining())
		return nil
	}, t.member, t.members, t.shards, t.leases, t.remaining, t.certificate)
	return err
}

func (t *Telemetry) observe(o metric.Observer, v *core.View, trust time.Duration) {
	o.ObserveFloat64(t.remaining, trust.Seconds(), metric.WithAttributes(t.own...))
	if end := v.CertificateEnd; !end.IsZero() {
		o.ObserveFloat64(t.certificate, float64(end.Unix()), metric.WithAttributes(t.own...))
	}
	for state, is := range map[string]bool{
		"joined": v.Session != "", "trusted": v.Trusted, "halted": v.Err != nil, "leaving": v.Leaving,
		"eligible": v.Ineligible == "",
	} {
		n := int64(0)
		if is {
			n = 1
		}
		o.ObserveInt64(t.member, n, t.with("state", state))
	}
	o.ObserveInt64(t.members, int64(len(v.Members)), t.with("state", "live"))
	o.ObserveInt64(t.members, int64(len(v.Silent)), t.with("state", "silent"))
	o.ObserveInt64(t.members, int64(count.Troubled(v)), t.with("state", "troubled"))
	known := 0
	for i := range v.Shards {
		if !strings.HasPrefix(v.Shards[i].Shard, "_") {
			known++
		}
	}
	unowned, reserved := v.Unowned()
	for state, n := range map[string]int{
		"known": known, "contended": v.Contended, "unowned": unowned, "unowned_reserved": reserved,
		"quarantined": count.Quarantined(v),
	} {
		o.ObserveInt64(t.shards, int64(n), t.with("state", state))
	}
	leases := map[core.LeaseState]int64{
		core.LeaseStarting: 0, core.LeaseHeld: 0, core.LeaseDraining: 0, core.LeaseRevoked: 0, core.LeaseStuck: 0,
		core.LeaseReturned: 0,
	}
	for i := range v.Leases {
		leases[v.Leases[i].State]++
	}
	for state, n := range leases {
		o.ObserveInt64(t.leases, n, t.with("state", string(state)))
	}
}
