package tenureprom

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/observe/internal/count"
	"github.com/tenure-go/tenure/observe/internal/takeover"
	"github.com/tenure-go/tenure/sharding"
)

// Options configure a Metrics. Nil means the defaults.
type Options struct {
	// Labels are added to each series. If a process has several Electors, the labels must
	// distinguish them, for example by namespace.
	Labels prometheus.Labels
	// PerShard adds series for each shard.
	PerShard bool
	// Buckets are the bounds, in seconds, of the histograms for calls and batches. The default
	// bounds range from 1 ms to 10 s.
	Buckets []float64
}

// elector is a *core.Elector or, in a test, a large View.
type elector interface {
	View() *core.View
	TrustRemaining() time.Duration
}

// tailer is a *follower.Tailer or, in a test, a fake.
type tailer interface {
	Lag() follower.Lag
	Lags() []follower.Lag
}

// Metrics is a prometheus.Collector for one Elector. A Metrics is safe for concurrent use.
type Metrics struct {
	gauges
	counters
	effectDescs
	perShard bool
	ended    takeover.Times

	mu      sync.Mutex
	elector elector
	tailers []tailer
	effects *effect.Stats
}

// gauges are read from a View at each collection.
type gauges struct {
	trusted, halted, leaving, eligible, joined, remaining, ttl, members, silent, troubled *prometheus.Desc
	known, contended, unowned, reserved, leases, damaged, lagEntries, lagSeconds          *prometheus.Desc
	quarantined, leader, token, shardLag, certificate                                     *prometheus.Desc
}

type effectDescs struct{ waiting, oldest, begun, finished, retries, full *prometheus.Desc }

// counters are updated by hooks.
type counters struct {
	granted, handlerErrors, stuck, refused, beatFailures, dropped, plans, resets, fenced prometheus.Counter
	endedBy, settled, sessions, peers, moves, applied, failures, restores                *prometheus.CounterVec
	takeover                                                                             prometheus.Histogram
	handover, calls, applies                                                             *prometheus.HistogramVec
}

// New returns Metrics for the caller to register. Nil options mean the defaults.
func New(o *Options) *Metrics {
	if o == nil {
		o = &Options{}
	}
	buckets := o.Buckets
	if buckets == nil {
		buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	}
	m := &Metrics{
		perShard: o.PerShard, gauges: newGauges(o.Labels), counters: newCounters(o.Labels, buckets),
		effectDescs: newEffectDescs(o.Labels),
	}
	// In a series whose first value is 1, Prometheus sees no increase. The series that alerts use
	// therefore begin at 0.
	for _, k := range []core.EventKind{
		core.SessionJoined, core.SessionJoinFailed, core.SessionBeatFailed, core.SessionLapsed, core.SessionRegained,
		core.SessionLost, core.SessionHalted, core.SessionFailedOver, core.SessionStoreLost, core.SessionCallFailed,
		core.SessionIneligible, core.SessionEligible,
	} {
		m.sessions.WithLabelValues(string(k))
	}
	for _, outcome := range []string{"ok", "refused", "unknown"} {
		m.calls.WithLabelValues("beat", outcome)
	}
	return m
}

func describer(labels prometheus.Labels) func(name, help string, variable ...string) *prometheus.Desc {
	return func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc("tenure_"+name, help, variable, labels)
	}
}

func newEffectDescs(labels prometheus.Labels) effectDescs {
	d := describer(labels)
	return effectDescs{
		waiting:  d("effects", "Effects that wait: in doubt, or unresolved, which a person decides.", "state"),
		oldest:   d("effects_oldest_seconds", "Time since the oldest effect that waits began.", "state"),
		begun:    d("effects_begun_total", "Effects whose intent was written."),
		finished: d("effects_ended_total", "Effects that ended.", "outcome"),
		retries:  d("effects_retries_total", "Attempts after an effect's first."),
		full:     d("effects_full_total", "Calls that began no effect, as too many are in doubt."),
	}
}

func newGauges(labels prometheus.Labels) gauges {
	d := describer(labels)
	return gauges{
		trusted:     d("member_trusted", "1 while the session of this member is trusted."),
		halted:      d("member_halted", "1 once the store was found to be another one: nothing is granted."),
		leaving:     d("member_leaving", "1 from the start of a planned stop."),
		eligible:    d("member_eligible", "1 while this member is eligible to own shards."),
		joined:      d("member_joined", "1 while this member has a session."),
		remaining:   d("trust_remaining_seconds", "Time until the leases end if no heartbeat succeeds any more."),
		certificate: d("client_certificate_end_timestamp_seconds", "Earliest end of the client certificates of the store, since the epoch."),
		ttl:         d("ttl_seconds", "TTL of this member."),
		members:     d("members", "Members that live, as this member sees it."),
		silent:      d("members_silent", "Members without a heartbeat for their TTL, as this member sees it."),
		troubled:    d("members_troubled", "Members in trouble, as this member sees it: the store refuses calls, or a handler is stuck."),
		known:       d("shards_known", "Shards seen or wanted, without reserved ones."),
		contended:   d("shards_contended", "Shards that this member contends for."),
		unowned:     d("shards_unowned", "Shards that nobody serves, without reserved ones."),
		reserved:    d("shards_unowned_reserved", "Tenure's own shards that nobody serves."),
		quarantined: d("shards_quarantined", "Shards in quarantine: withheld from all members, since their owners died."),
		leases:      d("leases", "Leases of this member.", "state"),
		damaged:     d("records_damaged", "Records of the store that cannot be read."),
		lagEntries:  d("follower_lag_entries", "Entries known and not applied, over all shards."),
		lagSeconds:  d("follower_lag_seconds", "How far the furthest shard is behind."),
		leader:      d("shard_leader", "1 for each shard that this member serves.", "shard"),
		token:       d("shard_token", "Newest token known of the shard.", "shard"),
		shardLag:    d("follower_shard_lag_entries", "Entries of the shard known and not applied.", "shard"),
	}
}

func newCounters(labels prometheus.Labels, buckets []float64) counters {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "tenure_" + name, Help: help, ConstLabels: labels}
	}
	c := func(name, help string) prometheus.Counter { return prometheus.NewCounter(opts(name, help)) }
	v := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(opts(name, help), []string{label})
	}
	h := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: "tenure_" + name, Help: help, ConstLabels: labels, Buckets: buckets}
	}
	moves := []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	return counters{
		granted:       c("leases_granted_total", "Leases granted to this member."),
		endedBy:       v("leases_ended_total", "Leases of this member that ended.", "cause"),
		settled:       v("leases_settled_total", "How leases of this member ended in the store.", "outcome"),
		handlerErrors: c("handler_errors_total", "Handlers that returned an error by themselves."),
		stuck:         c("handlers_stuck_total", "Handlers that did not return in time."),
		refused:       c("writes_refused_total", "Writes that the store refused by their fence."),
		sessions:      v("session_events_total", "What happened to the own session.", "event"),
		peers:         v("peer_events_total", "What happened to other members.", "event"),
		beatFailures:  c("heartbeat_failures_total", "Heartbeats that failed."),
		dropped:       c("hook_events_dropped_total", "Events lost since hooks were too slow."),
		plans:         c("plans_total", "Plans that this member wrote."),
		moves:         v("plan_moves_total", "Shards moved by plans of this member.", "reason"),
		applied:       v("follower_applied_entries_total", "Entries applied.", "applier"),
		failures:      v("follower_failures_total", "Failures of the store or an Applier.", "applier"),
		restores:      v("follower_restores_total", "Snapshots restored.", "applier"),
		resets:        c("follower_resets_total", "New beginnings of the stream."),
		fenced:        c("fence_refused_total", "Writes outside the store that were refused by their fence."),
		takeover: prometheus.NewHistogram(h("takeover_seconds",
			"Time from the former owner's last sign of life to the grant.", moves)),
		handover: prometheus.NewHistogramVec(h("handover_seconds",
			"Time from asking the handler to stop to the change of the store's record.", moves), []string{"outcome"}),
		calls: prometheus.NewHistogramVec(h("store_call_seconds", "Calls to the store.", buckets),
			[]string{"operation", "outcome"}),
		applies: prometheus.NewHistogramVec(h("follower_apply_seconds", "Batches applied.", buckets), []string{"applier"}),
	}
}

func (c *counters) all() []prometheus.Collector {
	return []prometheus.Collector{
		c.granted, c.endedBy, c.settled, c.handlerErrors, c.stuck, c.refused, c.sessions, c.peers, c.beatFailures, c.dropped,
		c.plans, c.moves, c.applied, c.failures, c.restores, c.resets, c.fenced, c.takeover, c.handover, c.calls, c.applies,
	}
}

// Watch makes the Metrics show an Elector's View. Metrics without an Elector have no gauges.
func (m *Metrics) Watch(e *core.Elector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.elector = e
}

// Follow adds a Tailer whose lag the Metrics show. For several Tailers, the Metrics show the total
// lag in entries and the longest lag in time.
func (m *Metrics) Follow(t *follower.Tailer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tailers = append(m.tailers, t)
}

// Effects sets the effects to show. All of this process's ledgers must share these Stats
// (effect.Options.Stats). Without this call, the Metrics contain nothing about effects.
func (m *Metrics) Effects(s *effect.Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.effects = s
}

// Refused counts a refused write. Use this method as an OnRefused function in package fence.
func (m *Metrics) Refused(*fence.RefusedError) { m.fenced.Inc() }

// Planned counts a plan and its moves. Use this method as sharding.Options.OnPlan.
func (m *Metrics) Planned(o *sharding.Outcome) {
	m.plans.Inc()
	for i := range o.Moves {
		m.moves.WithLabelValues(o.Moves[i].Why.String()).Inc()
	}
}

// FollowerEvent counts a Tailer's event. Use this method as follower.Options.OnEvent.
func (m *Metrics) FollowerEvent(e follower.Event) {
	switch e.Kind {
	case follower.Applied:
		m.applied.WithLabelValues(e.Applier).Add(float64(e.Count))
		m.applies.WithLabelValues(e.Applier).Observe(e.Took.Seconds())
	case follower.Restored:
		m.restores.WithLabelValues(e.Applier).Inc()
	case follower.Failed:
		m.failures.WithLabelValues(e.Applier).Inc()
	case follower.Reset:
		m.resets.Inc()
	}
}

// Hooks returns hooks for core.Options. Use core.JoinHooks to combine these hooks with other hooks.
func (m *Metrics) Hooks() core.Hooks {
	return core.Hooks{OnEvent: m.onEvent, OnCall: m.onCall}
}

func (m *Metrics) onEvent(e core.Event) {
	switch e.Kind {
	case core.LeaseGranted:
		m.granted.Inc()
		if took, ok := m.ended.Took(e); ok {
			m.takeover.Observe(took.Seconds())
		}
	case core.LeaseEnded:
		if r, ok := errors.AsType[*core.RevokedError](e.Err); ok {
			m.endedBy.WithLabelValues(r.Cause).Inc()
		}
	case core.HandlerReturned:
		if e.Err != nil {
			m.handlerErrors.Inc()
		}
	case core.HandlerStuck:
		m.stuck.Inc()
	case core.WriteRefused:
		m.refused.Inc()
	case core.LeaseReleased, core.LeaseTransferred, core.LeaseLost, core.LeaseRefused, core.LeaseUnknown:
		m.settled.WithLabelValues(string(e.Kind)).Inc()
		if e.Took > 0 {
			m.handover.WithLabelValues(string(e.Kind)).Observe(e.Took.Seconds())
		}
	case core.EventsDropped:
		m.dropped.Add(float64(e.Dropped))
	case core.HandlerStarted, core.HandlerStopping, core.RecordDamaged: // not counted
	default:
		if peer, ok := strings.CutPrefix(string(e.Kind), "peer "); ok {
			m.peers.WithLabelValues(peer).Inc()
			m.ended.Peer(e)
		} else {
			m.sessions.WithLabelValues(string(e.Kind)).Inc()
		}
	}
}

func (m *Metrics) onCall(c core.Call) {
	outcome := "ok"
	switch {
	case core.NotApplied(c.Err):
		outcome = "refused"
	case c.Err != nil:
		outcome = "unknown"
	}
	m.calls.WithLabelValues(c.Kind, outcome).Observe(c.Took.Seconds())
	if c.Kind == "beat" && c.Err != nil {
		m.beatFailures.Inc()
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.trusted, m.halted, m.leaving, m.eligible, m.joined, m.remaining, m.ttl, m.members, m.silent, m.troubled, m.known, m.contended,
		m.unowned, m.reserved, m.quarantined, m.leases, m.damaged, m.lagEntries, m.lagSeconds, m.leader, m.token, m.shardLag, m.certificate,
		m.waiting, m.oldest, m.begun, m.finished, m.retries, m.full,
	} {
		ch <- d
	}
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
	m.mu.Lock()
	e, tailers, effects := m.elector, m.tailers, m.effects
	m.mu.Unlock()
	if e != nil {
		m.collectView(ch, e.View(), e.TrustRemaining())
	}
	if len(tailers) > 0 {
		m.collectLag(ch, tailers)
	}
	if effects != nil {
		m.collectEffects(ch, effects.Counts())
	}
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (m *Metrics) collectView(ch chan<- prometheus.Metric, v *core.View, trust time.Duration) {
	gauge(ch, m.trusted, truth(v.Trusted))
	gauge(ch, m.halted, truth(v.Err != nil))
	gauge(ch, m.leaving, truth(v.Leaving))
	gauge(ch, m.eligible, truth(v.Ineligible == ""))
	gauge(ch, m.joined, truth(v.Session != ""))
	gauge(ch, m.remaining, trust.Seconds())
	if end := v.CertificateEnd; !end.IsZero() {
		gauge(ch, m.certificate, float64(end.Unix()))
	}
	if self, ok := v.Member(v.Session); ok {
		gauge(ch, m.ttl, self.TTL.Seconds())
	}
	gauge(ch, m.members, float64(len(v.Members)))
	gauge(ch, m.silent, float64(len(v.Silent)))
	gauge(ch, m.troubled, float64(count.Troubled(v)))
	gauge(ch, m.contended, float64(v.Contended))
	gauge(ch, m.damaged, float64(len(v.Damaged)))
	known := 0
	for i := range v.Shards {
		o := &v.Shards[i]
		if !strings.HasPrefix(o.Shard, "_") {
			known++
		}
		if m.perShard {
			gauge(ch, m.token, float64(o.Token), o.Shard)
		}
	}
	gauge(ch, m.known, float64(known))
	unowned, reserved := v.Unowned()
	gauge(ch, m.unowned, float64(unowned))
	gauge(ch, m.reserved, float64(reserved))
	gauge(ch, m.quarantined, float64(count.Quarantined(v)))
	states := map[core.LeaseState]int{
		core.LeaseStarting: 0, core.LeaseHeld: 0, core.LeaseDraining: 0, core.LeaseRevoked: 0, core.LeaseStuck: 0,
		core.LeaseReturned: 0,
	}
	for _, l := range v.Leases {
		states[l.State]++
		if m.perShard && l.State == core.LeaseHeld && v.Trusted {
			gauge(ch, m.leader, 1, string(l.Fence.Shard))
		}
	}
	for state, n := range states {
		gauge(ch, m.leases, float64(n), string(state))
	}
}

func (m *Metrics) collectLag(ch chan<- prometheus.Metric, tailers []tailer) {
	var entries int64
	var longest time.Duration
	behind := make(map[string]int64)
	for _, t := range tailers {
		l := t.Lag()
		entries += l.Entries
		longest = max(longest, l.Time)
		if m.perShard {
			for _, l := range t.Lags() {
				behind[l.Shard] = max(behind[l.Shard], l.Entries)
			}
		}
	}
	gauge(ch, m.lagEntries, float64(entries))
	gauge(ch, m.lagSeconds, longest.Seconds())
	for s, n := range behind {
		gauge(ch, m.shardLag, float64(n), s)
	}
}

func (m *Metrics) collectEffects(ch chan<- prometheus.Metric, c effect.Counts) {
	for state, w := range map[string]effect.Waiting{"in doubt": c.InDoubt, "unresolved": c.Unresolved} {
		gauge(ch, m.waiting, float64(w.Number), state)
		gauge(ch, m.oldest, w.Age().Seconds(), state)
	}
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(m.begun, c.Begun)
	count(m.finished, c.Done, "done")
	count(m.finished, c.Failed, "failed")
	count(m.finished, c.Refused, "refused")
	count(m.retries, c.Retries)
	count(m.full, c.Full)
}
