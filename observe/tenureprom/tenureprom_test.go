package tenureprom_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/internal/seam"
	"github.com/tenure-go/tenure/observe/tenureprom"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

const ttl = time.Second

// process is a member, its store in fake time, and its metrics.
type process struct {
	*core.Elector
	m       *tenureprom.Metrics
	reg     *prometheus.Registry
	link    *kvfault.Link
	backend core.Backend
	stop    func()
}

func start(t *testing.T, store *memory.Store, node string, h core.Handler, shards ...string) *process {
	t.Helper()
	p := &process{m: tenureprom.New(nil), reg: prometheus.NewPedanticRegistry(), link: &kvfault.Link{}}
	p.reg.MustRegister(p.m)
	b, err := memory.Open(t.Context(), store, "test", &memory.Options{Wrap: p.link.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	p.backend, b.Certificate = b, &driver.Certificate{}
	b.Certificate.Note(&tls.Config{Certificates: []tls.Certificate{{Leaf: &x509.Certificate{NotAfter: time.Unix(2_000_000_000, 0)}}}})
	p.Elector, err = core.NewElector(p.backend, &core.Options{
		Node: node, TTL: ttl, CallTimeout: ttl, DrainBudget: ttl, Hooks: p.m.Hooks(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.m.Watch(p.Elector)
	if err := p.Contend(h, shards...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.Run(ctx) }() // some processes are cut off
	p.stop = func() {
		p.link.Heal()
		cancel()
		<-ended
		if err := p.backend.Close(); err != nil {
			t.Error(err)
		}
	}
	return p
}

func value(t *testing.T, g prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, s := range f.GetMetric() {
			if matches(s, labels) {
				sum += s.GetGauge().GetValue() + s.GetCounter().GetValue() + float64(s.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func matches(s *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		if !slices.ContainsFunc(s.GetLabel(), func(l *dto.LabelPair) bool {
			return l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}) {
			return false
		}
	}
	return true
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 1200 {
		synctest.Wait()
		if cond() {
			return
		}
		time.Sleep(ttl / 20)
	}
	t.Fatalf("not within a minute: %s", what)
}

func hold(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }

// The metrics show a hand-over, a failing handler, an outage and a death.
func TestMetricsOfACluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a := start(t, store, "a", hold, "eu", "us")
		eventually(t, "a owns both", func() bool { return value(t, a.reg, "tenure_leases", "state", "held") == 2 })
		failed := false
		b := start(t, store, "b", func(ctx context.Context, _ *core.Lease) error {
			if !failed {
				failed = true
				return errors.New("boom")
			}
			<-ctx.Done()
			return ctx.Err()
		}, "eu", "us")
		eventually(t, "they know each other", func() bool { return value(t, a.reg, "tenure_members") == 2 })
		for name, want := range map[string]float64{
			"tenure_member_trusted": 1, "tenure_member_joined": 1, "tenure_member_halted": 0, "tenure_member_leaving": 0, "tenure_member_eligible": 1,
			"tenure_ttl_seconds": 1, "tenure_shards_known": 2, "tenure_shards_contended": 2, "tenure_shards_unowned": 0,
			"tenure_leases_granted_total": 2, "tenure_heartbeat_failures_total": 0,
		} {
			if got := value(t, a.reg, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		a.Internal(seam.Key{}).SetAside(map[string]seam.Aside{"eu": {Why: "in quarantine", Until: time.Now()}, "us": {Why: "it has ended"}})
		if got := value(t, a.reg, "tenure_shards_quarantined"); got != 1 {
			t.Errorf("%v in quarantine, want 1", got)
		}
		a.Internal(seam.Key{}).SetAside(nil)
		if got := value(t, a.reg, "tenure_shards_quarantined"); got != 0 {
			t.Errorf("%v in quarantine, want 0", got)
		}
		end := time.Unix(2_000_000_000, 0)
		if got := value(t, a.reg, "tenure_client_certificate_end_timestamp_seconds"); got != float64(end.Unix()) {
			t.Errorf("the certificate ends at %v", got)
		}
		if got := value(t, a.reg, "tenure_trust_remaining_seconds"); got <= 0 || got > 1 {
			t.Errorf("trust remaining %v", got)
		}
		if err := a.HandOver(t.Context(), b.View().Session, "eu"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "b's handler failed", func() bool { return value(t, b.reg, "tenure_handler_errors_total") == 1 })
		if got := value(t, a.reg, "tenure_leases_settled_total", "outcome", "transferred"); got != 1 {
			t.Errorf("%v transferred", got)
		}
		if got := value(t, a.reg, "tenure_leases_ended_total", "cause", "asked to stop"); got != 1 {
			t.Errorf("%v leases ended as released", got)
		}

		time.Sleep(ttl)
		a.link.SetError(kvfault.All, errors.New("connection reset"))
		eventually(t, "a lapsed", func() bool {
			return value(t, a.reg, "tenure_member_trusted") == 0 && value(t, a.reg, "tenure_heartbeat_failures_total") > 0 &&
				value(t, a.reg, "tenure_session_events_total", "event", "trust lapsed") == 1 &&
				value(t, a.reg, "tenure_trust_remaining_seconds") == 0
		})
		if value(t, a.reg, "tenure_store_call_seconds", "operation", "beat", "outcome", "unknown") == 0 ||
			value(t, a.reg, "tenure_store_call_seconds", "operation", "beat", "outcome", "ok") == 0 {
			t.Error("heartbeats of both outcomes are missing")
		}
		eventually(t, "b took over", func() bool { return value(t, b.reg, "tenure_takeover_seconds") >= 1 })
		eventually(t, "b owns all", func() bool { return value(t, b.reg, "tenure_leases", "state", "held") == 2 })
		if value(t, b.reg, "tenure_peer_events_total", "event", "evicted") != 1 {
			t.Error("no eviction is counted")
		}
		b.stop()
		a.stop()
		if value(t, b.reg, "tenure_member_leaving") != 1 {
			t.Error("a stopped member is not leaving")
		}
		if value(t, b.reg, "tenure_handover_seconds") == 0 && value(t, b.reg, "tenure_leases_settled_total") < 3 {
			t.Error("what was given back at the end is not counted")
		}
	})
}

// A leader has effects with each outcome, an effect that waits for a person, and an effect that the
// next Do repeats. The series do not name effects. After a leader has lost its lease, its series
// are gone.
func TestEffects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stats, leases := &effect.Stats{}, make(chan *core.Lease, 2)
		a := start(t, memory.New(), "a", func(ctx context.Context, l *core.Lease) error { leases <- l; <-ctx.Done(); return nil }, "eu", "us")
		a.m.Effects(stats)
		for _, repeatable := range []bool{false, true} {
			l, err := effect.Open(t.Context(), <-leases, &effect.Options{Stats: stats, Repeatable: repeatable, Attempts: 2, MaxInDoubt: 1,
				Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if repeatable {
				time.Sleep(time.Minute)
			}
			for i, fail := range []error{nil, effect.NotDone(errors.New("busy")), effect.Refused(errors.New("declined")), errors.New("lost"), nil} {
				key := fmt.Sprintf("pay/secret-%d", i)
				_, err := l.Do(t.Context(), key, func(context.Context, string) ([]byte, error) { return nil, fail })
				if (err == nil) != (i == 0) || errors.Is(err, effect.ErrFull) != (i == 4) {
					t.Errorf("%s: %v", key, err)
				}
			}
		}
		for _, want := range []struct {
			name, label, value string
			n                  float64
		}{
			{"tenure_effects", "state", "in doubt", 1}, {"tenure_effects", "state", "unresolved", 1},
			{"tenure_effects_ended_total", "outcome", "done", 2}, {"tenure_effects_ended_total", "outcome", "failed", 2},
			{"tenure_effects_ended_total", "outcome", "refused", 2}, {"tenure_effects_begun_total", "", "", 8},
			{"tenure_effects_retries_total", "", "", 3}, {"tenure_effects_full_total", "", "", 2},
		} {
			labels := []string{want.label, want.value}
			if want.label == "" {
				labels = nil
			}
			if got := value(t, a.reg, want.name, labels...); got != want.n {
				t.Errorf("%s %q is %v, want %v", want.name, labels, got, want.n)
			}
		}
		const oldest = "tenure_effects_oldest_seconds"
		young, old := value(t, a.reg, oldest, "state", "in doubt"), value(t, a.reg, oldest, "state", "unresolved")
		if young < 0 || young > 5 || old < 60 || old > 65 {
			t.Errorf("the oldest are %v s and %v s old", young, old)
		}
		families, err := a.reg.Gather()
		if err != nil || strings.Contains(fmt.Sprint(families), "secret") {
			t.Errorf("%v, or a key is a label", err)
		}
		a.link.Cut()
		time.Sleep(2 * ttl)
		if n := value(t, a.reg, "tenure_effects"); n != 0 {
			t.Errorf("%v effects wait after the leases were lost", n)
		}
		a.stop()
	})
}

type big struct{ v *core.View }

func (b big) View() *core.View              { return b.v }
func (b big) TrustRemaining() time.Duration { return time.Second }
func (b big) Lag() follower.Lag             { return follower.Lag{Entries: 3, Time: time.Second} }
func (b big) Lags() []follower.Lag {
	lags := make([]follower.Lag, len(b.v.Shards))
	for i := range lags {
		lags[i].Shard = b.v.Shards[i].Shard
	}
	return lags
}

func bigView(shards int) big {
	v := &core.View{Node: "a", Session: "S", Trusted: true, Contended: shards, CertificateEnd: time.Unix(2_000_000_000, 0)}
	for i := range shards {
		name := fmt.Sprintf("s-%05d", i)
		v.Shards = append(v.Shards, core.Ownership{Shard: name, Session: "S", Token: 7, Node: "a"})
		v.Leases = append(v.Leases, core.LeaseInfo{Fence: core.Fence{Shard: core.ShardID(name)}, State: core.LeaseHeld})
	}
	v.Members = []core.Member{{Session: "S", Node: "a", TTL: ttl}}
	return big{v}
}

func everything(m *tenureprom.Metrics) {
	h := m.Hooks()
	for _, k := range []string{
		"join", "beat", "acquire", "transfer", "release", "evict", "update", "read", "close", "commit", "observe",
		"read head", "get", "list", "read log",
	} {
		for _, err := range []error{nil, core.ErrRetry, errors.New("reset")} {
			h.OnCall(core.Call{Kind: k, Err: err, Took: time.Millisecond})
		}
	}
	for c := fsm.CauseReleased; c <= fsm.CauseFailback; c++ {
		h.OnEvent(core.Event{Kind: core.LeaseEnded, Err: &core.RevokedError{Cause: c.String()}})
	}
	for _, k := range []core.EventKind{
		core.HandlerStarted, core.HandlerStopping, core.HandlerReturned, core.HandlerStuck, core.WriteRefused,
		core.LeaseReleased, core.LeaseTransferred, core.LeaseLost, core.LeaseRefused, core.LeaseUnknown,
		core.SessionJoined, core.SessionJoinFailed, core.SessionBeatFailed, core.SessionLapsed, core.SessionRegained,
		core.SessionLost, core.SessionHalted, core.SessionFailedOver, core.SessionStoreLost, core.SessionCallFailed,
		core.PeerUpdated, core.PeerGone, core.PeerSilent, core.PeerDead, core.PeerEvicted, core.RecordDamaged, core.EventsDropped,
	} {
		h.OnEvent(core.Event{Kind: k, Peer: core.Member{Session: "P"}, Took: time.Second, Dropped: 2})
	}
	h.OnEvent(core.Event{Kind: core.LeaseGranted, Session: "P"})
	for _, e := range []follower.Event{
		{Kind: follower.Applied, Applier: "x", Count: 5}, {Kind: follower.Failed, Applier: "x"}, {Kind: follower.Failed},
		{Kind: follower.Restored, Applier: "x"}, {Kind: follower.Reset},
	} {
		m.FollowerEvent(e)
	}
	m.Refused(&fence.RefusedError{})
	for why := assign.Orphaned; why <= assign.TakenOver; why++ {
		m.Planned(&sharding.Outcome{Moves: []assign.Move{{Why: why}}})
	}
}

func gather(t *testing.T, o *tenureprom.Options, shards int) (series int, names map[string]bool) {
	t.Helper()
	m := tenureprom.New(o)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	b := bigView(shards)
	m.Show(b, b)
	m.Effects(&effect.Stats{})
	everything(m)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names = make(map[string]bool)
	for _, f := range families {
		names[f.GetName()] = true
		for _, s := range f.GetMetric() {
			series++
			if h := s.GetHistogram(); h != nil {
				series += len(h.GetBucket()) + 2 // +Inf and the sum; the count is the series above
			}
		}
	}
	return series, names
}

// TestSeries counts the series of a member that owns 10,000 shards after everything that can happen
// has happened.
func TestSeries(t *testing.T) {
	t.Parallel()
	bounded, _ := gather(t, nil, 10_000)
	again, _ := gather(t, nil, 10)
	perShard, _ := gather(t, &tenureprom.Options{PerShard: true}, 10_000)
	t.Logf("10,000 shards: at most %d series, and %d with PerShard", bounded, perShard)
	if bounded > 1000 || bounded != again || perShard != bounded+30_000 {
		t.Errorf("%d series with 10,000 shards, %d with 10, %d per shard", bounded, again, perShard)
	}
}

// The package comment names exactly the metrics that exist.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	_, names := gather(t, &tenureprom.Options{PerShard: true}, 1)
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^//\t(tenure_\w+)`).FindAllStringSubmatch(string(doc), -1) {
		documented[m[1]] = true
	}
	if !maps.Equal(names, documented) {
		t.Errorf("metrics %q\n\n documented %q", slices.Sorted(maps.Keys(names)), slices.Sorted(maps.Keys(documented)))
	}
}

// BenchmarkOnCall measures how long a call occupies the goroutine of the hooks.
func BenchmarkOnCall(b *testing.B) {
	h := tenureprom.New(nil).Hooks()
	b.ReportAllocs()
	for b.Loop() {
		h.OnCall(core.Call{Kind: "commit", Items: 1, Took: time.Millisecond})
	}
}

// BenchmarkCollect measures one scrape of a member that knows 10,000 shards.
func BenchmarkCollect(b *testing.B) {
	m := tenureprom.New(nil)
	view := bigView(10_000)
	m.Show(view, view)
	reg := prometheus.NewRegistry()
	reg.MustRegister(m)
	for b.Loop() {
		if _, err := reg.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
