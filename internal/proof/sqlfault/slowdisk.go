package sqlfault

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// slowCase contains the duration of a flush and the TTL of the members.
type slowCase struct {
	flush, ttl time.Duration
	appends    bool
}

func (c slowCase) String() string {
	how := "idle"
	if c.appends {
		how = "appends"
	}
	return fmt.Sprintf("flush=%v/ttl=%v/%s", c.flush, c.ttl, how)
}

const (
	// slowMedian limits the median duration of heartbeats, in flushes. A commit that begins during
	// another commit's flush waits for the rest of that flush and for a second one.
	slowMedian = 2
	// slowParts limits the lapses of trust. If a flush is shorter than TTL/slowParts, no trust may
	// lapse.
	slowParts = 4
)

// SlowDiskFlags contains SlowDisk's flags.
type SlowDiskFlags struct {
	all    *bool
	config *string
}

// SlowDiskFlag defines the flags of SlowDisk. A test package calls SlowDiskFlag once, to initialize
// a variable.
func SlowDiskFlag() SlowDiskFlags {
	return SlowDiskFlags{flag.Bool("slowdisk", false, "play every case of the slow disk"),
		flag.String("slowdisk.config", "", "a line of the server's configuration")}
}

// SlowDisk runs three members on a server whose disk flushes slowly (E4). The server counts the
// flushes, so a busy machine does not change the counts. All cases together take about two minutes.
// Without the flag -slowdisk, SlowDisk runs only one case.
func (s *Setup) SlowDisk(t *testing.T, flags SlowDiskFlags) {
	t.Parallel()
	flushes := []time.Duration{300 * time.Millisecond}
	ttls, hows := []time.Duration{3 * time.Second}, []bool{false}
	var config []string
	if *flags.config != "" {
		config = append(config, *flags.config)
	}
	if *flags.all {
		flushes = append(flushes, 100*time.Millisecond, 600*time.Millisecond)
		ttls, hows = append(ttls, time.Second), append(hows, true)
	}
	for _, flush := range flushes {
		t.Run(fmt.Sprint(flush), func(t *testing.T) {
			t.Parallel()
			server := servers.New(t, s.Kind, &servers.Options{SlowFlush: true, Config: config})
			for _, ttl := range ttls {
				for _, appends := range hows {
					c := slowCase{flush, ttl, appends}
					t.Run(c.String(), func(t *testing.T) { s.slowDisk(t, server, c) })
				}
			}
		})
	}
}

func (s *Setup) slowDisk(t *testing.T, server *servers.Server, c slowCase) {
	dsn := s.migrated(t, server)
	db := s.DB(t, dsn)
	machine := ample.Beside(t, c.ttl/10, func() { _ = db.PingContext(t.Context()) })
	var r record
	stop := make([]func() error, 3)
	for i := range stop {
		stop[i] = s.member(t, dsn, fmt.Sprint("n", i), c, &r)
	}
	ample.Wait(t, "there are not three members and an owner", func() bool { return r.granted.Load() > 0 && r.joined.Load() == 3 })
	flushes, err := server.SlowFlush(c.flush)
	if err != nil {
		t.Fatal(err)
	}
	r.flushes = flushes
	r.measured.Store(true)
	time.Sleep(max(6*c.ttl, 20*c.flush)) // the measured time, not a wait
	r.measured.Store(false)
	if _, err := server.SlowFlush(0); err != nil {
		t.Error(err)
	}
	for _, stop := range stop {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	r.judge(t, c, machine)
}

// member runs an Elector until the returned function is called.
func (s *Setup) member(t *testing.T, dsn servers.DSN, node string, c slowCase, r *record) (stop func() error) {
	b, err := s.Open(t.Context(), dsn.Reveal(), "slow")
	if err != nil {
		t.Fatal(err)
	}
	e, err := core.NewElector(b, &core.Options{Node: node, TTL: c.ttl, Hooks: r.hooks(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	err = e.Contend(func(ctx context.Context, l *core.Lease) error {
		for i := 0; c.appends && ctx.Err() == nil; i++ {
			_, _ = l.Append(ctx, fmt.Append(nil, i))
		}
		<-ctx.Done()
		return nil
	}, "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- e.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		err := <-ran
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return errors.Join(err, b.Close())
	})
}

// record collects the reports of all members' hooks while measured is set.
type record struct {
	joined, granted atomic.Int64
	measured        atomic.Bool
	flushes         func() (uint32, error) // set before measured

	mu     sync.Mutex
	cost   []uint32        // flushes during each heartbeat
	took   []time.Duration // of each heartbeat
	failed int
	lapses []time.Time
	errs   []error
}

func (r *record) hooks() core.Hooks {
	return core.Hooks{
		OnEvent: func(e core.Event) {
			switch {
			case e.Kind == core.LeaseGranted:
				r.granted.Add(1)
			case e.Kind == core.SessionJoined:
				r.joined.Add(1)
			case e.Kind == core.SessionLapsed && r.measured.Load():
				r.mu.Lock()
				defer r.mu.Unlock()
				r.lapses = append(r.lapses, time.Now())
			}
		},
		CallStart: func(ctx context.Context, c core.Call) (context.Context, func(error)) {
			if c.Kind != "beat" || !r.measured.Load() {
				return ctx, nil
			}
			begun := time.Now()
			before, early := r.flushes()
			return ctx, func(err error) {
				took := time.Since(begun)
				after, late := r.flushes()
				if !r.measured.Load() {
					return
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.took = append(r.took, took); err != nil {
					r.failed++
				}
				r.cost, r.errs = append(r.cost, after-before), append(r.errs, early, late)
			}
		},
	}
}

func (r *record) judge(t *testing.T, c slowCase, machine *ample.Gauge) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(r.errs...); err != nil {
		t.Fatal(err)
	}
	if len(r.cost) == 0 {
		t.Fatal("no heartbeat")
	}
	slices.Sort(r.cost)
	slices.Sort(r.took)
	median := r.cost[len(r.cost)/2]
	third, _ := slices.BinarySearch(r.cost, slowMedian+1)
	t.Logf("%v: %d heartbeats, median %d flushes, more than %d: %d; median %v, 90 %% within %v; %d failed; %d lapses", c, len(r.cost), median,
		slowMedian, len(r.cost)-third,
		r.took[len(r.took)/2].Round(time.Millisecond), r.took[len(r.took)*9/10].Round(time.Millisecond), r.failed, len(r.lapses))
	if median > slowMedian {
		t.Errorf("the median of heartbeats costs %d flushes, want at most %d", median, slowMedian)
	}
	if c.flush < c.ttl/slowParts && len(r.lapses) > 0 {
		machine.AtMost(fmt.Sprintf("one flush is below one of %d parts of the TTL: the time after a lapse of trust", slowParts),
			time.Since(r.lapses[0]), 0)
	}
}
