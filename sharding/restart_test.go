package sharding

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/proof/share"
)

var (
	restartShards = flag.Int("restart.shards", restartScale, "shards of the rolling restart")
	restartRounds = flag.Int("restart.rounds", 1, "how often all members are restarted")
)

// fleet is an application with many shards. Its writers append numbered entries to random shards
// that they own.
type fleet struct {
	t      *testing.T
	open   func() (core.Backend, error)
	o      *Options
	shards int

	mu     sync.Mutex
	grants map[string]int
	free   map[string]time.Time // by shard: since when no process runs its handler
	gaps   []time.Duration      // of planned moves
	acked  map[uint64]string    // by acknowledged entry: its shard
	next   uint64
	timed  bool
}

type boat struct {
	f      *fleet
	b      core.Backend
	m      *Manager
	stop   context.CancelFunc
	end    context.CancelFunc
	ran    chan error
	ended  chan error
	writer sync.WaitGroup

	mu     sync.Mutex
	leases map[string]*core.Lease
}

func (f *fleet) launch(node string) *boat {
	f.t.Helper()
	x := &boat{f: f, ran: make(chan error, 1), ended: make(chan error, 1), leases: map[string]*core.Lease{}}
	var err error
	if x.b, err = f.open(); err != nil {
		f.t.Fatal(err)
	}
	e, err := core.NewElector(x.b, &core.Options{Node: node, TTL: 10 * time.Second})
	if err != nil {
		f.t.Fatal(err)
	}
	if x.m, err = NewManager(x.b, e, x.serve, f.o); err != nil {
		f.t.Fatal(err)
	}
	var elect, manage context.Context
	elect, x.end = context.WithCancel(context.Background())
	manage, x.stop = context.WithCancel(context.Background())
	go func() { x.ended <- e.Run(elect) }()
	go func() { x.ran <- x.m.Run(manage) }()
	x.writer.Go(func() { x.write(elect) })
	return x
}

func (x *boat) serve(ctx context.Context, l *core.Lease) error {
	f := x.f
	f.mu.Lock()
	f.grants[l.Shard()]++
	if since, ok := f.free[l.Shard()]; ok && f.timed {
		f.gaps = append(f.gaps, time.Since(since))
	}
	f.mu.Unlock()
	x.mu.Lock()
	x.leases[l.Shard()] = l
	x.mu.Unlock()
	<-ctx.Done()
	x.mu.Lock()
	delete(x.leases, l.Shard())
	x.mu.Unlock()
	f.mu.Lock()
	f.free[l.Shard()] = time.Now()
	f.mu.Unlock()
	return nil
}

// write appends to a few of the boat's shards at a time, until ctx ends.
func (x *boat) write(ctx context.Context) {
	for pause(ctx, 10*time.Millisecond) {
		var some []*core.Lease
		x.mu.Lock()
		for _, l := range x.leases { // the order is random
			if some = append(some, l); len(some) == 8 {
				break
			}
		}
		x.mu.Unlock()
		var all sync.WaitGroup
		for _, l := range some {
			all.Go(func() {
				x.f.mu.Lock()
				x.f.next++
				n := x.f.next
				x.f.mu.Unlock()
				if _, err := l.Append(l.Context(), binary.BigEndian.AppendUint64(nil, n)); err == nil {
					x.f.mu.Lock()
					x.f.acked[n] = l.Shard()
					x.f.mu.Unlock()
				}
			})
		}
		all.Wait()
	}
}

func (x *boat) leave() {
	x.stop()
	if err := <-x.ran; err != nil {
		x.f.t.Errorf("manager: %v", err)
	}
	x.end()
	if err := <-x.ended; err != nil {
		x.f.t.Errorf("elector: %v", err)
	}
	x.writer.Wait()
	if err := x.b.Close(); err != nil {
		x.f.t.Error(err)
	}
}

// settled waits until the members' shares have been even for a while.
func (f *fleet) settled(boats []*boat) {
	f.t.Helper()
	want := f.shards / len(boats)
	for from := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		low, high := 1<<30, 0
		for _, x := range boats {
			x.mu.Lock()
			low, high = min(low, len(x.leases)), max(high, len(x.leases))
			x.mu.Unlock()
		}
		if low >= want && high <= want+1 {
			return
		}
		if time.Since(from) > time.Minute {
			f.t.Fatalf("after a minute the members have %d to %d shards", low, high)
		}
	}
}

// TestRollingRestart restarts five members with many shards one by one under load. No entry is lost
// or duplicated (W2), and no shard moves more than twice per round. The test uses fake time,
// because shards would move more often if a slow machine carried out plans too late.
//
//	go test ./sharding -run TestRollingRestart -v -args -restart.shards 10000 -restart.rounds 3
func TestRollingRestart(t *testing.T) {
	for name, store := range map[string]func(t *testing.T) func() (core.Backend, error){
		"memory": func(*testing.T) func() (core.Backend, error) {
			s := memory.New()
			return func() (core.Backend, error) { return memory.Open(context.Background(), s, "fleet", nil) }
		},
		"sqlite": func(t *testing.T) func() (core.Backend, error) {
			file := filepath.Join(t.TempDir(), "fleet.db")
			return func() (core.Backend, error) {
				return sqlite.Open(context.Background(), file, "fleet", &sqlite.Options{NoNotify: true})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { rollingRestart(t, store(t)) })
		})
	}
}

func rollingRestart(t *testing.T, open func() (core.Backend, error)) {
	shards := share.Of(t, "restart.shards", *restartShards, *restartShards/5)
	f := &fleet{
		t: t, open: open, shards: shards, grants: map[string]int{}, free: map[string]time.Time{}, acked: map[uint64]string{},
		o: &Options{Shards: []string{fmt.Sprintf("orders-0000..%d", shards-1)}, Interval: 100 * time.Millisecond},
	}
	var boats []*boat
	for i := range 5 {
		boats = append(boats, f.launch(fmt.Sprintf("n%d", i)))
	}
	f.settled(boats)
	f.mu.Lock()
	clear(f.grants)
	f.timed = true
	f.mu.Unlock()
	began := time.Now()
	for round := range *restartRounds {
		for i := range boats {
			boats[i].leave()
			f.settled(slices.Delete(slices.Clone(boats), i, i+1))
			boats[i] = f.launch(fmt.Sprintf("n%d", i))
			f.settled(boats)
		}
		f.mu.Lock()
		most, moves := 0, 0
		for _, n := range f.grants {
			most, moves = max(most, n), moves+n
		}
		f.mu.Unlock()
		t.Logf("round %d: %d moves, at most %d of one shard", round, moves, most)
		if most > 2*(round+1) {
			t.Errorf("a shard moved %d times in %d rounds, want at most 2 a round", most, round+1)
		}
	}
	took := time.Since(began)
	for _, x := range boats {
		x.leaveAtEnd()
	}
	f.examine(took)
}

func (x *boat) leaveAtEnd() {
	x.f.mu.Lock()
	x.f.timed = false
	x.f.mu.Unlock()
	x.leave()
}

func (f *fleet) examine(took time.Duration) {
	b, err := f.open()
	if err != nil {
		f.t.Fatal(err)
	}
	defer b.Close()
	written := map[uint64]int{}
	names, _ := keyspace.Expand(f.o.Shards...)
	for _, name := range names {
		for after := core.Seq(0); ; {
			page, err := b.ReadLog(f.t.Context(), core.ShardID(name), after, 1000)
			if err != nil {
				f.t.Fatal(err)
			}
			if len(page.Entries) == 0 {
				break
			}
			for _, e := range page.Entries {
				written[binary.BigEndian.Uint64(e.Payload)]++
				after = e.Seq
			}
		}
	}
	for n, times := range written {
		if times > 1 {
			f.t.Errorf("entry %d is written %d times", n, times)
		}
	}
	for n, shard := range f.acked {
		if written[n] == 0 {
			f.t.Errorf("entry %d of %s was acknowledged and is lost", n, shard)
		}
	}
	if len(f.acked) < 500 {
		f.t.Errorf("%d entries acknowledged: the load proves nothing", len(f.acked))
	}
	slices.Sort(f.gaps)
	if len(f.gaps) == 0 {
		f.t.Fatal("nothing moved")
	}
	f.t.Logf("%d entries while all members restarted in %v; %d moves, a shard unowned for %v at the median, %v at p99, %v at most", len(f.acked),
		took.Round(time.Millisecond), len(f.gaps), f.gaps[len(f.gaps)/2].Round(10*time.Microsecond), f.gaps[len(f.gaps)*99/100].Round(10*time.Microsecond), f.gaps[len(f.gaps)-1].Round(10*time.Microsecond))
}
