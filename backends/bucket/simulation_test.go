package bucket

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// sim is one run of several processes on a bucket with faults, in virtual time.
type sim struct {
	cloud *cloud
	mu    sync.Mutex
	rng   *rand.Rand
	calm  bool

	acked   map[string][]string // by key: the marks of acknowledged writes
	refused []string            // marks of writes that certainly were not applied
	shown   map[string][]string // by key: the values that watches delivered
	wrong   []string
	unknown int
}

func (s *sim) wrongf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// course decides what happens to a request. One in thirty has a fault.
func (s *sim) course(kind, name string) course {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := func(most time.Duration) time.Duration { return time.Duration(s.rng.Int64N(int64(most))) }
	c := course{before: 5*time.Millisecond + d(15*time.Millisecond), after: 5*time.Millisecond + d(15*time.Millisecond)}
	if s.calm || s.rng.IntN(30) > 0 {
		return c
	}
	switch s.rng.IntN(8) {
	case 0:
		c.lost, c.err = true, errReset
	case 1:
		c.err = errReset // the reply is lost
	case 2:
		c.late = d(2 * time.Hour)
	case 3:
		c.err, c.lost = errThrottled, s.rng.IntN(2) == 0
	case 4:
		c.lost, c.after = true, time.Hour // no answer
	case 5:
		c.before, c.stop = d(time.Hour), true
	case 6:
		c.after, c.stop = d(time.Hour), true
	case 7:
		if kind == "put" {
			c.torn = true
			if s.rng.IntN(2) == 0 {
				c.err = errReset
			}
		}
	}
	return c
}

const simNamespace = "sim"

// open opens a process.
func (s *sim) open(blind bool) (*store, error) {
	c := testConfig(s.cloud, simNamespace, true)
	c.Poll, c.every, c.keep = time.Second, 16, 24
	own, err := prepare(context.Background(), c)
	if err == nil {
		own.mu.Lock()
		own.blind = blind
		own.mu.Unlock()
	}
	return own, err
}

// process appends marks to keys, each append conditional on the revision that it read.
func (s *sim) process(id, steps int, blind bool) {
	var own *store
	var watches sync.WaitGroup
	defer func() {
		if own != nil {
			_ = own.Close()
		}
		watches.Wait()
	}()
	for step := range steps {
		s.mu.Lock()
		pause, reopen, direct := time.Duration(s.rng.Int64N(int64(2*time.Second))), s.rng.IntN(40) == 0, s.rng.IntN(3) == 0
		key := fmt.Sprintf("%s/k%d", simNamespace, s.rng.IntN(3))
		s.mu.Unlock()
		time.Sleep(pause)
		if own != nil && reopen {
			if err := own.Close(); err != nil {
				s.wrongf("close: %v", err)
			}
			own = nil
		}
		if own == nil {
			var err error
			if own, err = s.open(blind); err != nil {
				own = nil
				if errors.Is(err, driver.ErrStoreChanged) || errors.Is(err, driver.ErrDamaged) {
					s.wrongf("open: %v", err)
				}
				continue
			}
			opened := own
			watches.Go(func() { s.watch(opened) })
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		mark := fmt.Sprintf("%d.%d", id, step)
		if direct {
			s.create(ctx, own, mark, step%2 == 0)
		} else {
			s.append(ctx, own, key, mark)
		}
		cancel()
	}
}

// watch records what a process's watches deliver, until the process closes.
func (s *sim) watch(own *store) {
	for own.life.Err() == nil {
		page, err := own.Range(context.Background(), kv.Range{Prefix: simNamespace + "/", Limit: 1, KeysOnly: true})
		if err == nil {
			_ = own.Watch(context.Background(), []string{simNamespace + "/"}, page.Rev, func(_ kv.Rev, changes []kv.Change) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, c := range changes {
					s.shown[c.Key] = append(s.shown[c.Key], string(c.Value))
				}
				return nil
			})
		}
		wait(own.life, time.Second)
	}
}

// create writes a key that is used once, and so can never be there before.
func (s *sim) create(ctx context.Context, own *store, mark string, beat bool) {
	key := simNamespace + "/once/" + mark
	out, err := own.Apply(ctx, &kv.Batch{Heartbeat: beat, Txns: []kv.Txn{{
		If: []kv.Compare{{Key: key, Rev: kv.Absent}}, Ops: []kv.Op{{Key: key, Value: []byte(mark)}},
	}}})
	if err == nil && !out.Results[0].OK {
		s.wrongf("the create of %s, which nobody else writes, was refused", key)
	}
	s.record(key, mark, err)
}

func (s *sim) append(ctx context.Context, own *store, key, mark string) {
	s.mu.Lock()
	before := slices.Clone(s.acked[key])
	s.mu.Unlock()
	page, err := own.Get(ctx, key)
	if err != nil {
		return
	}
	p := page.Pairs[0]
	s.has("a read", p, before)
	out, err := own.Apply(ctx, &kv.Batch{Txns: []kv.Txn{{
		If: []kv.Compare{{Key: key, Rev: p.Rev}}, Ops: []kv.Op{{Key: key, Value: []byte(string(p.Value) + mark + " ")}},
		Else: []string{key},
	}}})
	if err == nil && !out.Results[0].OK {
		s.mu.Lock()
		s.refused = append(s.refused, mark)
		s.mu.Unlock()
		return
	}
	s.record(key, mark, err)
}

func (s *sim) record(key, mark string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.acked[key] = append(s.acked[key], mark)
	case errors.Is(err, driver.ErrStoreChanged):
		s.wrong = append(s.wrong, err.Error())
	case driver.NotApplied(err):
		s.refused = append(s.refused, mark)
	default:
		s.unknown++
	}
}

// has checks that a record has each mark, once.
func (s *sim) has(what string, p kv.Pair, marks []string) {
	got := strings.Fields(string(p.Value))
	for _, m := range marks {
		if n := count(got, m); n != 1 {
			s.wrongf("%s of %s has the acknowledged write %s %d times: %q", what, p.Key, m, n, p.Value)
		}
	}
}

func count(all []string, x string) (n int) {
	for _, y := range all {
		if x == y {
			n++
		}
	}
	return n
}

// run runs a seed, and returns what went wrong.
func (s *sim) run(t *testing.T, blind bool) {
	synctest.Test(t, func(t *testing.T) {
		s.cloud.fault = s.course
		var all sync.WaitGroup
		for id := range 4 {
			all.Go(func() { s.process(id, 60, blind) })
		}
		all.Wait()
		time.Sleep(3 * time.Hour) // late requests arrive
		s.mu.Lock()
		s.calm = true
		s.mu.Unlock()
		own, err := s.open(blind)
		if err != nil {
			s.wrongf("at the end: %v", err)
			return
		}
		page, err := own.Range(t.Context(), kv.Range{Prefix: simNamespace + "/"})
		if err != nil {
			s.wrongf("at the end: %v", err)
		} else {
			s.judge(page)
		}
		if err := own.Close(); err != nil {
			s.wrongf("close: %v", err)
		}
	})
}

func (s *sim) judge(page *kv.Page) {
	found := make(map[string]kv.Pair)
	var all []string
	for _, p := range page.Pairs {
		found[p.Key] = p
		all = append(all, strings.Fields(string(p.Value))...)
	}
	for key, marks := range s.acked {
		p := found[key]
		p.Key = key
		s.has("the end", p, marks)
	}
	for key, values := range s.shown { // each value is the one before and a mark
		for _, v := range values {
			if !strings.HasPrefix(string(found[key].Value), v) {
				s.wrongf("a watch delivered %q of %s, which is %q at the end", v, key, found[key].Value)
			}
		}
	}
	for _, m := range s.refused {
		if count(all, m) > 0 {
			s.wrongf("the write %s is there, and was reported as not applied", m)
		}
	}
}

func newSim(seed uint64) *sim {
	return &sim{cloud: newCloud(), rng: rand.New(rand.NewPCG(seed, 1)), acked: make(map[string][]string),
		shown: make(map[string][]string)}
}

// TestSimulation: no acknowledged write is lost or applied twice, no other is reported as not applied,
// and watches deliver only what stays, under lost and late requests, throttling, torn checkpoints, and processes that are
// stopped in the middle of a request.
func TestSimulation(t *testing.T) {
	t.Parallel()
	seeds := 120
	if testing.Short() {
		seeds = 20
	}
	acked, unknown, collected, shown := 0, 0, 0, 0
	for seed := range uint64(seeds) {
		s := newSim(seed)
		s.run(t, false)
		for i, w := range s.wrong {
			if i < 5 {
				t.Errorf("seed %d: %s", seed, w)
			}
		}
		for _, marks := range s.acked {
			acked += len(marks)
		}
		for _, values := range s.shown {
			shown += len(values)
		}
		unknown += s.unknown
		if len(s.cloud.names(fmt.Sprintf("!log/%020d", 1))) == 0 {
			collected++
		}
	}
	t.Logf("%d seeds: %d writes acknowledged, %d unknown, %d changes delivered; %d logs were collected", seeds, acked, unknown,
		shown, collected)
	if acked < 50*seeds || shown < acked || collected < seeds/2 {
		t.Errorf("of %d seeds only %d writes were acknowledged, and %d logs collected: the simulation shows nothing", seeds, acked, collected)
	}
}

// TestSimulationFindsLosses is the control: without the proof of an object's place, writes are lost.
func TestSimulationFindsLosses(t *testing.T) {
	t.Parallel()
	seeds := 60
	if testing.Short() {
		seeds = 20
	}
	var bad atomic.Int64
	for seed := range uint64(seeds) {
		s := newSim(seed)
		s.run(t, true)
		if len(s.wrong) > 0 {
			if bad.Add(1) == 1 {
				t.Logf("seed %d: %s", seed, s.wrong[0])
			}
		}
	}
	if bad.Load() == 0 {
		t.Errorf("of %d seeds none lost a write, although no object's place was proven", seeds)
	}
}
