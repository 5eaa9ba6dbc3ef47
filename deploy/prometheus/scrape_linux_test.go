package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/observe/tenureprom"
	"github.com/tenure-go/tenure/sharding"
)

const (
	ttl           = 2 * time.Second
	demonstration = "demonstration" // its job
)

// plant is one namespace. It is a job of Prometheus, with members on a store in memory.
type plant struct {
	*testing.T
	name    string
	store   *memory.Store
	ctx     context.Context
	members []*member
	await   func(alert string, firing bool)
	quiet   func() // checks that no critical alert fires
}

// member is one process, as Prometheus and the other members see it.
type member struct {
	*core.Elector
	m       *tenureprom.Metrics
	link    *kvfault.Link
	backend core.Backend
	server  *httptest.Server
	stop    context.CancelFunc
	ended   chan struct{}
	options core.Options
	hang    chan struct{} // while it is open, handlers do not return
	leases  chan *core.Lease
}

// add creates a member that Prometheus scrapes. The member takes part after its method start is
// called.
func (p *plant) add(node string, supersede bool) *member {
	p.Helper()
	m := &member{
		m: tenureprom.New(nil), link: &kvfault.Link{}, hang: make(chan struct{}), leases: make(chan *core.Lease, 1000),
	}
	close(m.hang)
	registry := client.NewRegistry()
	registry.MustRegister(m.m)
	m.server = httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	m.options = core.Options{Node: node, Supersede: supersede, TTL: ttl, DrainBudget: ttl / 2, CallTimeout: ttl,
		Hooks: m.m.Hooks(), Logger: slog.New(slog.DiscardHandler)}
	p.members = append(p.members, m)
	return m
}

func (p *plant) start(m *member, shards ...string) {
	p.Helper()
	var err error
	if m.backend, err = memory.Open(p.ctx, p.store, "test", &memory.Options{Wrap: m.link.Wrap}); err != nil {
		p.Fatal(err)
	}
	if m.Elector, err = core.NewElector(m.backend, &m.options); err != nil {
		p.Fatal(err)
	}
	m.m.Watch(m.Elector)
	if len(shards) > 0 {
		if err := m.Contend(m.serve, shards...); err != nil {
			p.Fatal(err)
		}
	}
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background())
	m.ended = make(chan struct{})
	go func() { defer close(m.ended); _ = m.Run(ctx) }() // some are cut off
	p.Cleanup(func() { m.end(p.T) })
}

func (m *member) serve(ctx context.Context, l *core.Lease) error {
	m.leases <- l
	<-ctx.Done()
	<-m.hang
	return nil
}

// kill ends the member as SIGKILL does, without informing the store or Prometheus.
func (m *member) kill() {
	m.link.Cut()
	m.stop()
	m.server.Close()
}

func (m *member) end(t *testing.T) {
	m.link.Heal()
	m.stop()
	<-m.ended
	if err := m.backend.Close(); err != nil {
		t.Error(err)
	}
	m.server.Close()
}

func (p *plant) eventually(what string, cond func() bool) {
	p.Helper()
	ample.Wait(p, "it is not so: "+what, cond)
}

// while repeats an action until the returned function is called.
func (p *plant) while(every time.Duration, do func()) (enough func()) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for tick := time.Tick(every); ; {
			do()
			select {
			case <-tick:
			case <-stop:
				return
			}
		}
	})
	return func() { close(stop); all.Wait() }
}

// plants contains the members and the events for each alert.
func plants() map[string]func(p *plant) (play func()) {
	return map[string]func(p *plant) func(){
		"TenureShardsUnowned":    (*plant).shardsUnowned,
		"TenureShardQuarantined": (*plant).shardQuarantined,
		"TenureUntrusted":        func(p *plant) func() { return p.outage("TenureUntrusted") },
		"TenureHeartbeatsFail":   func(p *plant) func() { return p.outage("TenureHeartbeatsFail") },
		"TenureHeartbeatsSlow":   (*plant).heartbeatsSlow,
		"TenureHandlerStuck":     (*plant).handlerStuck,
		"TenureMemberTroubled":   (*plant).troubled,
		"TenureHalted":           (*plant).halted,
		"TenureNobodyEligible":   (*plant).nobodyEligible,
		"TenureWritesRefused":    (*plant).writesRefused,
		"TenureFlapping":         (*plant).flapping,
		"TenureSessionsLost":     (*plant).sessionsLost,
		"TenureFollowerBehind":   (*plant).followerBehind,
		"TenureEffectsInDoubt": func(p *plant) func() {
			return p.effectWaits("TenureEffectsInDoubt", effect.Decision{}, errors.New("the bank is down"))
		},
		"TenureEffectsUnresolved": func(p *plant) func() {
			return p.effectWaits("TenureEffectsUnresolved", effect.Decision{State: effect.InDoubt}, nil)
		},
		"TenureRecordsDamaged": (*plant).recordsDamaged,
		"none":                 (*plant).sound,
	}
}

func (p *plant) shardsUnowned() func() {
	a, b := p.add("a", false), p.add("b", false)
	return func() {
		p.start(a, "eu", "us")
		p.start(b, "us")
		p.eventually("b sees both owned", func() bool {
			v := b.View()
			unowned, _ := v.Unowned()
			return len(v.Shards) == 2 && unowned == 0
		})
		a.kill()
		p.await("TenureShardsUnowned", true)
		if err := b.Contend(b.serve, "eu"); err != nil {
			p.Error(err)
		}
		p.await("TenureShardsUnowned", false)
	}
}

// shardQuarantined kills an owner once, which is enough here.
func (p *plant) shardQuarantined() func() {
	a, b := p.add("a", false), p.add("b", false)
	return func() {
		for _, m := range []*member{a, b} {
			p.start(m)
			s, err := sharding.NewManager(m.backend, m.Elector, m.serve, &sharding.Options{Shards: []string{"eu", "us"},
				Quarantine: sharding.Quarantine{Deaths: 1, For: 20 * time.Second}, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				p.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() { defer close(ended); _ = s.Run(ctx) }() // one is killed
			p.Cleanup(func() { stop(); <-ended })
		}
		p.eventually("each owns one", func() bool { return len(a.View().Leases) > 0 && len(b.View().Leases) > 0 })
		p.quiet()
		a.kill()
		p.await("TenureShardQuarantined", true)
		p.await("TenureShardQuarantined", false)
	}
}

func (p *plant) heartbeatsSlow() func() {
	a := p.add("a", false)
	return func() {
		p.start(a, "eu")
		<-a.leases
		a.link.Set(kvfault.Heartbeat, kvfault.HoldRequest)
		enough := p.while(ttl/4, func() { a.link.Deliver() })
		p.await("TenureHeartbeatsSlow", true)
		enough()
		a.link.Heal()
		a.link.Deliver()
		p.await("TenureHeartbeatsSlow", false)
	}
}

func (p *plant) handlerStuck() func() {
	a := p.add("a", false)
	return func() {
		a.hang = make(chan struct{})
		p.start(a, "eu")
		<-a.leases
		if err := a.Withdraw(p.ctx, "eu"); !errors.Is(err, core.ErrStuck) {
			p.Errorf("withdraw: %v", err)
		}
		p.await("TenureHandlerStuck", true)
		close(a.hang)
		p.await("TenureHandlerStuck", false)
	}
}

func (p *plant) troubled() func() {
	a := p.add("a", false)
	return func() {
		p.start(a, "eu")
		l := <-a.leases
		committing := p.while(100*time.Millisecond, func() {
			ctx, cancel := context.WithTimeout(p.ctx, ttl)
			defer cancel()
			_, _ = l.Append(ctx, []byte("x"))
		})
		a.link.SetError(kvfault.Write, fmt.Errorf("tenure: %w: %w", core.ErrRetry, core.ErrDenied))
		p.await("TenureMemberTroubled", true)
		a.link.Heal()
		p.await("TenureMemberTroubled", false)
		committing()
	}
}

func (p *plant) halted() func() {
	a, again := p.add("a", false), p.add("a2", false)
	return func() {
		p.start(a, "eu")
		<-a.leases
		p.store.Wipe()
		p.await("TenureHalted", true)
		a.kill() // the operator decided, and restarts it
		p.start(again, "eu")
		p.await("TenureHalted", false)
	}
}

func (p *plant) nobodyEligible() func() {
	a := p.add("a", false)
	return func() {
		var ill atomic.Bool
		a.options.Eligible = func(context.Context) error {
			if ill.Load() {
				return errors.New("the disk is full")
			}
			return nil
		}
		p.start(a, "eu")
		<-a.leases
		ill.Store(true)
		p.await("TenureNobodyEligible", true)
		ill.Store(false)
		p.await("TenureNobodyEligible", false)
	}
}

func (p *plant) writesRefused() func() {
	a := p.add("a", false)
	return func() {
		p.start(a, "eu")
		l := <-a.leases
		marks := fence.NewMark(&fence.Memory{}, &fence.Options{OnRefused: a.m.Refused})
		next := l.Fence()
		next.Token++
		if err := marks.Admit(p.ctx, "eu", next); err != nil {
			p.Error(err)
		}
		enough := p.while(100*time.Millisecond, func() {
			if err := marks.Admit(p.ctx, "eu", l.Fence()); !errors.Is(err, core.ErrFenced) {
				p.Errorf("a write of a former owner: %v", err)
			}
		})
		p.await("TenureWritesRefused", true)
		enough()
		p.await("TenureWritesRefused", false)
	}
}

func (p *plant) flapping() func() {
	a := p.add("a", false)
	return func() {
		p.start(a, "eu")
		enough := p.while(time.Millisecond, func() {
			<-a.leases
			if err := errors.Join(a.Withdraw(p.ctx, "eu"), a.Contend(a.serve, "eu")); err != nil {
				p.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
		})
		p.await("TenureFlapping", true)
		enough()
		p.await("TenureFlapping", false)
	}
}

func (p *plant) sessionsLost() func() {
	a, b := p.add("a", true), p.add("a", true)
	return func() {
		p.start(a, "eu")
		p.start(b, "eu")
		p.await("TenureSessionsLost", true)
		b.kill()
		p.await("TenureSessionsLost", false)
	}
}

func (p *plant) followerBehind() func() {
	a := p.add("a", false)
	return func() {
		p.start(a, "eu")
		l := <-a.leases
		var broken atomic.Bool
		broken.Store(true)
		apply := func(context.Context, follower.Batch) error {
			if broken.Load() {
				return errors.New("the projection's database is away")
			}
			return nil
		}
		t, err := follower.NewTailer(a.backend, &follower.Options{
			OnEvent: a.m.FollowerEvent, BackoffMax: 100 * time.Millisecond,
			BackoffMin: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = t.Follow("projection", follower.Memory(apply, nil), "eu")
		}
		if err != nil {
			p.Fatal(err)
		}
		a.m.Follow(t)
		ctx, cancel := context.WithCancel(p.ctx)
		ended := make(chan error, 1)
		go func() { ended <- t.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		if _, err := l.Append(p.ctx, []byte("x")); err != nil {
			p.Error(err)
		}
		p.await("TenureFollowerBehind", true)
		broken.Store(false)
		p.await("TenureFollowerBehind", false)
	}
}

// effectWaits creates an effect that is in doubt. Resolve reports the doubt, and later that the
// effect is done.
func (p *plant) effectWaits(alert string, says effect.Decision, fails error) func() {
	a := p.add("a", false)
	stats := &effect.Stats{}
	a.m.Effects(stats)
	return func() {
		p.start(a, "eu")
		l := <-a.leases
		var found atomic.Bool
		open := func() *effect.Ledger {
			ledger, err := effect.Open(p.ctx, l, &effect.Options{Stats: stats, Attempts: 1, Logger: slog.New(slog.DiscardHandler),
				Resolve: func(context.Context, effect.Effect) (effect.Decision, error) {
					if found.Load() {
						return effect.Decision{State: effect.Done}, nil
					}
					return says, fails
				}})
			if err != nil {
				p.Fatal(err)
			}
			return ledger
		}
		ledger := open()
		_, err := ledger.Do(p.ctx, "pay/1", func(context.Context, string) ([]byte, error) { return nil, errors.New("no answer") })
		if !errors.Is(err, effect.ErrInDoubt) {
			p.Error(err)
		}
		p.await(alert, true)
		found.Store(true)
		ledger.Close()
		if err := a.Withdraw(p.ctx, "eu"); err != nil {
			p.Error(err)
		}
		if err := a.Contend(a.serve, "eu"); err != nil { // the next lease's Resolve is asked
			p.Error(err)
		}
		l = <-a.leases
		ledger = open()
		defer ledger.Close()
		p.await(alert, false)
		if c := stats.Counts(); c.Done != 1 {
			p.Errorf("%+v", c)
		}
	}
}

func (p *plant) recordsDamaged() func() {
	a := p.add("a", false)
	return func() {
		p.start(a, "eu")
		l := <-a.leases
		if _, err := l.Append(p.ctx, nil); err != nil {
			p.Error(err)
		}
		const key = "test/!head/eu"
		sound, ok := p.store.Record(key)
		if !ok {
			p.Fatalf("there is no record %s", key)
		}
		p.store.Tamper(key, []byte("junk"))
		if _, err := l.Append(p.ctx, nil); !errors.Is(err, core.ErrDamaged) {
			p.Errorf("append under a damaged head: %v", err)
		}
		p.await("TenureRecordsDamaged", true)
		p.store.Tamper(key, sound)
		a.kill() // a view names a damaged record for two minutes, and a new process does not
		p.await("TenureRecordsDamaged", false)
	}
}

// sound creates a cluster without a fault.
func (p *plant) sound() func() {
	a, b := p.add("a", false), p.add("b", false)
	return func() {
		p.start(a, "eu")
		p.start(b, "us")
		for range 20 {
			time.Sleep(500 * time.Millisecond)
			p.quiet()
		}
	}
}

func (p *plant) outage(alert string) func() {
	a := p.add("a", false)
	return func() {
		p.start(a, "eu")
		<-a.leases
		a.link.SetError(kvfault.All, errors.New("connection reset"))
		p.await(alert, true)
		a.link.Heal()
		p.await(alert, false)
	}
}

// promtoolOnly lists the alerts that only promtool tests. The in-memory store has no failover and
// needs no certificate. To produce 65,536 waiting events, a hook would have to hang for longer than
// a test may take.
func promtoolOnly() []string {
	return []string{"TenureStoreLostWrites", "TenureCertificateEnds", "TenureHookEventsDropped"}
}

func TestEveryAlertHasItsFault(t *testing.T) {
	t.Parallel()
	all := plants()
	for _, r := range rules(t) {
		if r.Alert != "" && all[r.Alert] == nil && !slices.Contains(promtoolOnly(), r.Alert) {
			t.Errorf("%s: no fault has it fire", r.Alert)
		}
	}
}

// TestScrape lets a real Prometheus scrape the members of a namespace for each alert. It checks
// that the alert fires during the fault, and clears afterwards. The test shortens the rules'
// windows and waits to seconds, and reduces a count to the writes in that time. The expressions are
// otherwise the same as in production.
func TestScrape(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: Prometheus runs in make browser")
	}
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		if servers.Required("prometheus") {
			t.Fatal("there is no prometheus, which " + servers.RequireVariable + " requires: make servers installs it")
		}
		t.Skip("there is no prometheus: make servers installs it")
	}
	var critical []string // alerts that page a person
	for _, r := range rules(t) {
		if r.Labels["severity"] == "critical" {
			critical = append(critical, r.Alert)
		}
	}
	var all []*plant
	var plays []func()
	var jobs strings.Builder
	s := &scraper{}
	for alert, make := range plants() {
		p := &plant{name: alert, store: memory.New(), ctx: t.Context(), T: t}
		plays = append(plays, make(p))
		all = append(all, p)
		targets := []string{}
		for _, m := range p.members {
			targets = append(targets, fmt.Sprintf("%q", m.server.Listener.Addr().String()))
		}
		fmt.Fprintf(&jobs, "  - job_name: %s\n    static_configs: [{targets: [%s]}]\n", alert, strings.Join(targets, ", "))
	}
	demo := freeAddress(t) // where the demonstration listens when Prometheus runs
	fmt.Fprintf(&jobs, "  - job_name: %s\n    static_configs: [{targets: [%q]}]\n", demonstration, demo)
	s.run(t, binary, jobs.String())
	t.Run("alerts", func(t *testing.T) {
		t.Run("demonstration", func(t *testing.T) {
			t.Parallel()
			startDemonstration(t, demo)
			s.watchDemonstration(t)
		})
		for i, p := range all {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				p.T, p.ctx = t, t.Context()
				p.await = func(alert string, firing bool) {
					t.Helper()
					p.eventually(fmt.Sprintf("%s fires: %v", alert, firing), func() bool {
						return slices.Contains(s.firing(t, p.name), alert) == firing
					})
				}
				p.quiet = func() {
					t.Helper()
					for _, alert := range s.firing(t, p.name) {
						if slices.Contains(critical, alert) {
							t.Errorf("%s fires in a sound cluster", alert)
						}
					}
				}
				plays[i]()
			})
		}
	})
}

type scraper struct{ url string }

func (s *scraper) run(t *testing.T, binary, jobs string) {
	t.Helper()
	dir := t.TempDir()
	text := read(t, "tenure.rules.yml")
	for _, r := range [][2]string{
		{`\[(5m|15m|1h)\]`, "[8s]"}, {`> 10\n`, "> 2\n"}, {`for: \w+`, "for: 1s"}, {`lag_seconds > 30`, "lag_seconds > 2"}, {`> 600\n`, "> 2\n"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	config := "global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}\n" +
		"rule_files: [rules.yml]\nscrape_configs:\n" + jobs
	for name, content := range map[string]string{"rules.yml": text, "prometheus.yml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	addr := freeAddress(t)
	s.url = "http://" + addr
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary,
		"--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", addr, "--log.level=warn")
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has nothing to save
		<-ended
		if t.Failed() {
			t.Logf("Prometheus said:\n%s", out)
		}
	})
	ample.Wait(t, "Prometheus is not ready", func() bool {
		select {
		case <-ended:
			t.Fatal("Prometheus ended")
		default:
		}
		resp, err := http.Get(s.url + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK && s.scrapes(t)
	})
}

// freeAddress returns an address on which no process listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// scrapes reports whether all targets were scraped. A fault that ended before the first scrape
// would leave no trace.
func (s *scraper) scrapes(t *testing.T) bool {
	t.Helper()
	var body struct {
		Data struct {
			ActiveTargets []struct{ Health, ScrapePool string }
		}
	}
	s.get(t, "/api/v1/targets", &body)
	for _, target := range body.Data.ActiveTargets {
		if target.Health != "up" && target.ScrapePool != demonstration {
			return false
		}
	}
	return len(body.Data.ActiveTargets) > len(plants())
}

func (s *scraper) get(t *testing.T, path string, into any) {
	t.Helper()
	resp, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// firing returns the alerts of a job that currently fire.
func (s *scraper) firing(t *testing.T, job string) []string {
	t.Helper()
	var body struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	s.get(t, "/api/v1/alerts", &body)
	var names []string
	for _, a := range body.Data.Alerts {
		if a.State == "firing" && a.Labels["job"] == job {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names
}
