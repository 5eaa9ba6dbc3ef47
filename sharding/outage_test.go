package sharding

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/lock"
)

// linesAnHour is how many lines a process may log because of an hour's outage of the store.
const linesAnHour = 200

// TestOutageLines counts a process's log lines during and after an hour in which the store refuses
// or does not answer some or all calls. The process contains every part that logs: an Elector, a
// Manager with load and a keyspace, a Router, a Ledger for each shard, locks and followers.
func TestOutageLines(t *testing.T) {
	const hour, spell = time.Hour, 20 * time.Second
	refused := errors.New("the store refuses")
	for _, c := range []struct {
		name   string
		kinds  kvfault.Kind
		fault  kvfault.Fault
		err    error
		every  time.Duration // how often the fault ends and begins; 0: the fault does not end
		halted bool
		always bool // also with -short
	}{
		{name: "AllRefused", kinds: kvfault.All, fault: kvfault.Fail, always: true},
		{name: "AllSilent", kinds: kvfault.All, fault: kvfault.DropRequest},
		{name: "RepliesLost", kinds: kvfault.All, fault: kvfault.DropReply},
		{name: "ReadsRefused", kinds: kvfault.Read | kvfault.Watch, fault: kvfault.Fail},
		{name: "WatchesRefused", kinds: kvfault.Watch, fault: kvfault.Fail},
		{name: "WritesRefused", kinds: kvfault.Write, fault: kvfault.Fail},
		{name: "WritesSilent", kinds: kvfault.Write, fault: kvfault.DropRequest},
		{name: "ReadsInTurn", kinds: kvfault.Read | kvfault.Watch, fault: kvfault.Fail, every: spell, always: true},
		{name: "WritesInTurn", kinds: kvfault.Write, fault: kvfault.Fail, every: spell},
		{name: "StoreChanged", kinds: kvfault.All, fault: kvfault.Fail, err: core.ErrStoreChanged, halted: true, always: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && !c.always {
				t.Skip("-short: some cases are enough")
			}
			bubbleAlone(t, func(w *world) {
				lines := keepLines(t)
				p := newProcess(w)
				w.await("all shards are served", 20*ttl, p.serves)
				time.Sleep(time.Minute)
				lines.take()

				p.link.SetError(c.kinds, refused)
				if c.err != nil {
					p.link.SetError(c.kinds, c.err)
				}
				for end := time.Now().Add(hour); time.Now().Before(end); {
					p.link.Set(c.kinds, c.fault)
					if c.every == 0 {
						time.Sleep(hour)
						break
					}
					time.Sleep(c.every)
					p.link.Heal()
					time.Sleep(c.every)
				}
				if !c.halted {
					p.link.Heal()
					w.await("all shards are served again", 2*time.Minute, p.serves)
				}
				time.Sleep(time.Minute)
				n, by := lines.take()
				t.Logf("%d lines: %v", n, by)
				if end := "sharding: works again"; !c.halted && !strings.Contains(fmt.Sprint(by), end) {
					t.Errorf("no line says %q", end)
				}
				if n > linesAnHour {
					t.Errorf("an hour's outage cost %d lines, at most %d are allowed", n, linesAnHour)
				}
				if c.halted {
					time.Sleep(hour)
					if n, by := lines.take(); n > 0 {
						t.Errorf("a halted member logged in the second hour: %v", by)
					}
				}
				p.stop()
			})
		})
	}
}

// process is a process with every part that logs, with default options.
type process struct {
	w     *world
	link  *kvfault.Link
	b     core.Backend
	e     *core.Elector
	m     *Manager
	ends  []context.CancelFunc // in the order in which the parts stop
	parts []chan error

	mu   sync.Mutex
	held map[string]bool

	effects *effect.Stats
}

func newProcess(w *world) *process {
	p := &process{w: w, link: &kvfault.Link{}, held: map[string]bool{}, effects: &effect.Stats{}}
	var err error
	if p.b, err = memory.Open(w.Context(), w.store, "test", &memory.Options{Wrap: p.link.Wrap}); err != nil {
		w.Fatal(err)
	}
	if p.e, err = core.NewElector(p.b, &core.Options{Node: "a", TTL: 2 * ttl, LockDir: "none"}); err != nil {
		w.Fatal(err)
	}
	o := &Options{Shards: []string{"plain-00..07"}, Keyspace: Keyspace{Name: "orders", Shards: 8}}
	if p.m, err = NewManager(p.b, p.e, p.serve, o); err != nil {
		w.Fatal(err)
	}
	tailer, err := follower.NewTailer(p.b, nil)
	if err != nil {
		w.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		if err := tailer.Follow(name, follower.Memory(func(context.Context, follower.Batch) error { return nil }, nil), "*"); err != nil {
			w.Fatal(err)
		}
	}
	router, err := NewRouter(p.e, p.m)
	if err != nil {
		w.Fatal(err)
	}
	p.run(p.lock)
	p.run(func(ctx context.Context) error {
		for c := router.Changes(); ; {
			if _, err := c.Next(ctx); err != nil {
				return err
			}
		}
	})
	p.run(tailer.Run)
	p.run(p.m.Run)
	p.run(p.e.Run)
	return p
}

func (p *process) run(f func(context.Context) error) {
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	p.ends, p.parts = append(p.ends, end), append(p.parts, done)
}

func (p *process) stop() {
	for i, end := range p.ends {
		end()
		<-p.parts[i]
	}
	p.b.Close()
}

// serve is the handler of each shard: it counts load, writes, and performs effects.
func (p *process) serve(ctx context.Context, l *core.Lease) error {
	if _, err := p.m.o.Keyspace.index(l.Shard()); err == nil {
		s, err := p.m.OpenSlice(ctx, l, nil)
		if err != nil {
			return err
		}
		defer s.Close()
	}
	ledger, err := effect.Open(ctx, l, &effect.Options{Deadline: ttl, Keep: time.Minute, Stats: p.effects})
	if err != nil {
		return err
	}
	defer ledger.Close()
	p.hold(l.Shard(), true)
	defer p.hold(l.Shard(), false)
	for n := 0; pause(ctx, time.Minute); n++ {
		p.m.Add(l.Shard(), float64(n))
		call, cancel := context.WithTimeout(ctx, 5*ttl)
		_, _ = l.Append(call, []byte("x"))
		_, _ = ledger.Do(call, fmt.Sprintf("%d-%d", l.Token(), n), func(context.Context, string) ([]byte, error) { return nil, nil })
		cancel()
	}
	return nil
}

func (p *process) hold(shard string, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[shard] = is; !is {
		delete(p.held, shard)
	}
}

func (p *process) serves() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held) == 16
}

func (p *process) lock(ctx context.Context) error {
	locks := lock.Open(p.e)
	defer locks.Close()
	for ; ctx.Err() == nil; pause(ctx, 10*ttl) {
		call, cancel := context.WithTimeout(ctx, 5*ttl)
		k, err := locks.Lock(call, "one")
		cancel()
		if err != nil {
			continue
		}
		select {
		case <-k.Context().Done():
		case <-ctx.Done():
		}
		give, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*ttl)
		_ = k.Unlock(give)
		cancel()
	}
	return ctx.Err()
}

type kept struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// keepLines collects the lines of slog.Default until the test ends.
func keepLines(t *testing.T) *kept {
	k, before := &kept{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(k, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return k
}

func (k *kept) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.b.Write(b)
}

// take returns the number of lines, in total and for each message, and forgets them.
func (k *kept) take() (n int, by []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	count := map[string]int{}
	for line := range strings.Lines(k.b.String()) {
		_, rest, _ := strings.Cut(line, "msg=\"")
		msg, _, _ := strings.Cut(rest, "\"")
		count[msg]++
		n++
	}
	k.b.Reset()
	for _, msg := range slices.Sorted(maps.Keys(count)) {
		by = append(by, fmt.Sprintf("%d %s", count[msg], msg))
	}
	return n, by
}
