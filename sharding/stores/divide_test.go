// Package stores_test splits and merges ranges on real stores, in real processes that are killed
// and stopped.
package stores_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/fleet"
	"github.com/tenure-go/tenure/internal/seam"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

var (
	changes = flag.Int("changes", 12, "how many splits and merges are made on each store")
	items   = flag.Int("items", 1000, "how many items the ranges have, besides those of the keys")
	effects = flag.Int("effects", 20, "how many effects are made on each store, at least")
	window  = flag.Duration("window", time.Second, "for how long writes are measured without splits")
)

const (
	keys   = 60
	shards = 3
	most   = 8 // with at least this many shards, ranges are merged
	every  = 5 // an effect follows after this number of bookings of a key
)

func TestMain(m *testing.M) { os.Exit(fleet.Main(m, child)) }

type setting struct {
	Divide  bool // its assigner splits and merges ranges
	Seed    uint64
	Items   int  // writes this many items, and books nothing
	Honours bool // the provider performs each effect once for each idempotency key
}

func keyspace() sharding.Keyspace { return sharding.Keyspace{Name: "k", Shards: shards} }

func key(i int) string { return fmt.Sprintf("key-%d", i) }

func payment(key string, count int) string { return fmt.Sprintf("pay/%s/%d", key, count) }

// booking is an entry of a log, and an item.
type booking struct {
	Key   string `json:"key"`
	Count int    `json:"count"`
}

// divider is the assigner of the children.
type divider struct {
	assign.Balance
	rng *rand.Rand
}

// Plan adds a split or merge of some ranges to Balance's plan.
func (d *divider) Plan(c *assign.Cluster) *assign.Plan {
	p := d.Balance.Plan(c)
	for i := range c.Shards {
		s := &c.Shards[i]
		if s.Range.Empty() || s.Busy || d.rng.IntN(4) > 0 {
			continue
		}
		if width := s.Range.To - 1 - s.Range.From; len(c.Shards) < most && width > 1 {
			p.Splits = append(p.Splits, assign.Split{Shard: int32(i), At: []uint64{s.Range.From + 1 + d.rng.Uint64N(width)}})
			continue
		}
		for k := range c.Shards {
			if o := &c.Shards[k]; !o.Busy && !o.Range.Empty() && o.Range.From == s.Range.To && s.Range.To != 0 {
				p.Merges = append(p.Merges, assign.Merge{From: int32(i), To: int32(k)})
				return p
			}
		}
	}
	return p
}

// child runs a member that repeatedly books every key that it serves, and prints the acknowledged
// counts.
func child(ctx context.Context, b core.Backend, o *core.Options, set setting) error {
	e, err := core.NewElector(b, o)
	if err != nil {
		return err
	}
	so := &sharding.Options{Keyspace: keyspace(), Interval: 100 * time.Millisecond, LeaveBudget: 15 * time.Second,
		Quarantine: sharding.Quarantine{Deaths: -1}, Logger: slog.New(slog.DiscardHandler)}
	if set.Divide {
		so.Assigner = &divider{rng: rand.New(rand.NewPCG(set.Seed, 1))}
	}
	var m *sharding.Manager
	m, err = sharding.NewManager(b, e, func(ctx context.Context, l *core.Lease) error { return serve(ctx, m, b, l, set) }, so)
	if err != nil {
		return err
	}
	run, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(run) }()
	err = m.Run(ctx)
	end()
	return errors.Join(err, <-ended)
}

var out sync.Mutex // of lines on stdout

func serve(ctx context.Context, m *sharding.Manager, b core.Backend, l *core.Lease, set setting) error {
	s, err := m.OpenSlice(ctx, l, func(ctx context.Context, from string, r assign.Range) ([]core.Op, error) {
		items, err := b.List(ctx, core.ShardID(from), "k/", 0, 0)
		if err != nil {
			return nil, err
		}
		ops, err := effect.Take(ctx, b, l, from, func(key string) bool { return r.Has(keyspace().Of(strings.Split(key, "/")[1])) })
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			if r.Has(keyspace().Of(strings.TrimPrefix(it.Key, "k/"))) {
				ops = append(ops, core.Put(it.Key, it.Value))
			}
		}
		return ops, nil
	})
	if err != nil {
		return err
	}
	defer s.Close()
	if set.Items > 0 {
		if err := fill(ctx, s, l, set.Items); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	paid, err := effect.Open(ctx, l, &effect.Options{Repeatable: set.Honours, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer paid.Close()
	for ctx.Err() == nil {
		for i := 0; i < keys && ctx.Err() == nil; i++ { // a booking takes seconds on a busy machine
			_ = s.Do(key(i), func() error { return book(l, paid, key(i)) })
			if l.Err() != nil {
				return l.Err()
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

func item(i int) string { return fmt.Sprintf("item-%d", i) }

// fill writes the items of the shard's range, and reports that it has written them.
func fill(ctx context.Context, s *sharding.Slice, l *core.Lease, n int) error {
	r, _ := s.Range()
	var ops []core.Op
	for i := range n {
		if r.Has(keyspace().Of(item(i))) {
			ops = append(ops, core.Put("k/"+item(i), []byte(item(i))))
		}
	}
	for part := range slices.Chunk(ops, 50) {
		if _, err := l.Commit(ctx, part...); err != nil {
			return err
		}
	}
	return say("filled", l.Shard())
}

func say(words ...any) error {
	out.Lock()
	defer out.Unlock()
	_, err := fmt.Println(words...)
	return err
}

// pay performs an effect, which prints a line.
func pay(l *core.Lease, paid *effect.Ledger, key string) error {
	_, err := paid.Do(l.Context(), key, func(_ context.Context, id string) ([]byte, error) { return nil, say("paid", key, id) })
	if errors.Is(err, effect.ErrInDoubt) && l.Err() == nil {
		return say("doubt", key)
	}
	return err
}

func book(l *core.Lease, paid *effect.Ledger, key string) error {
	item, err := l.Get(l.Context(), "k/"+key)
	if err != nil {
		return err
	}
	at := booking{Key: key}
	if item != nil {
		if err := json.Unmarshal(item.Value, &at); err != nil {
			return err
		}
	}
	if at.Count > 0 && at.Count%every == 0 { // before the next booking, so that no effect is forgotten
		if err := pay(l, paid, payment(key, at.Count)); err != nil {
			return err
		}
	}
	at.Count++
	value, err := json.Marshal(at)
	if err != nil {
		return err
	}
	if _, err := l.Commit(l.Context(), core.Put("k/"+key, value), core.Append(value)); err != nil {
		return err
	}
	return say(key, at.Count)
}

// chaos contains the children of one test and their acknowledged counts.
type chaos struct {
	*fleet.Fleet

	mu    sync.Mutex
	acked map[string]int  // the highest count, by key
	lines map[string]bool // that were printed
	twice []string

	honours bool
	filled  map[string]bool
	made    map[string]map[string]int // by effect, and by idempotency key
	doubt   map[string]bool
}

func (f *chaos) start(divide bool) {
	f.Helper()
	f.Start(setting{Divide: divide, Seed: f.Rand.Uint64(), Honours: f.honours})
}

// take records a line that a child printed.
func (f *chaos) take(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch words := strings.Fields(line); {
	case len(words) == 2 && words[0] == "filled":
		f.filled[words[1]] = true
		return
	case len(words) == 2 && words[0] == "doubt":
		f.doubt[words[1]] = true
		return
	case len(words) == 3 && words[0] == "paid":
		if f.made[words[1]] == nil {
			f.made[words[1]] = map[string]int{}
		}
		f.made[words[1]][words[2]]++
		return
	}
	var key string
	var count int
	if n, _ := fmt.Sscan(line, &key, &count); n != 2 {
		return // the child was killed in the middle of a line
	}
	// A process that is stopped after a commit prints its line late, so the order proves nothing.
	if f.lines[line] {
		f.twice = append(f.twice, line)
	}
	f.lines[line] = true
	f.acked[key] = max(f.acked[key], count)
}

// TestDivide splits and merges ranges at random, while members are killed and stopped and the store
// is stopped. No key has two owners, and no acknowledged entry is lost or duplicated. In the end,
// the plans are lost and rebuilt from the notes of the shards.
func TestDivide(t *testing.T) {
	for _, p := range fleet.Places() {
		t.Run(p.Name, func(t *testing.T) {
			enough := *changes
			if testing.Short() {
				t.Parallel()
				enough = enough/3 + 1
				t.Logf("-short: %d splits and merges of %d", enough, *changes)
			}
			seed := rand.Uint64()
			f := &chaos{Fleet: fleet.New(t, p.New(t), "test", seed), acked: map[string]int{}, lines: map[string]bool{},
				honours: seed%2 == 0, filled: map[string]bool{}, made: map[string]map[string]int{}, doubt: map[string]bool{}}
			f.Take = f.take
			f.Start(setting{Items: *items})
			ample.Wait(t, "the items are not written", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.filled) == shards })
			f.LeaveAll()
			for range 3 {
				f.start(true)
			}
			b := f.Open()
			made := f.disturb(b, enough)
			f.LeaveAll() // the last members leave in order
			f.repair(b)
			for range 2 {
				f.start(false)
			}
			f.settle(b)
			f.LeaveAll()
			entries := f.check(b)
			t.Logf("%d splits and merges of %d items, %d entries of %d keys, %d effects, %d in doubt, keys honoured %v, seed %d",
				made, *items, entries, keys, len(f.made), len(f.doubt), f.honours, seed)
		})
	}
}

// repair replaces the plans with an entry that no member understands, and rebuilds the plans.
func (f *chaos) repair(b core.Backend) {
	o := &core.Options{Node: "tool", LockDir: "none", Logger: slog.New(slog.DiscardHandler)}
	if err := core.RunSingleton(f.Context(), b, "_assigner", func(ctx context.Context, l *core.Lease) error {
		seq, err := l.Append(ctx, []byte{99, 1})
		if err == nil {
			_, err = l.Commit(ctx, core.Trim(seq-1))
		}
		return err
	}, o); err != nil {
		f.Fatal(err)
	}
	if m, _, err := sharding.ReadPlans(f.Context(), b, seam.Key{}); !errors.Is(err, core.ErrInvalid) {
		f.Fatalf("the plans are %v: %v", m, err)
	}
	want, err := sharding.Repair(f.Context(), b, keyspace(), nil)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := sharding.Repair(f.Context(), b, keyspace(), o); err != nil {
		f.Fatal(err)
	}
	if m, _, err := sharding.ReadPlans(f.Context(), b, seam.Key{}); err != nil || shapeOf(m) != shapeOf(want) {
		f.Fatalf("the map is %v: %v, want %v", m, err, want)
	}
}

// disturb causes faults, each kind at least once, until enough splits and merges have been made. It
// returns the number of splits and merges.
func (f *chaos) disturb(b core.Backend, enough int) (made int) {
	const patience = 300
	kinds := f.Rand.Perm(4)
	for before, since := "", 0; made < enough || len(kinds) > 0 || f.effects() < *effects; since++ {
		if since == patience {
			f.Fatalf("no split or merge in %d rounds, after %d", patience, made)
		}
		m, _, err := sharding.ReadPlans(f.Context(), b, seam.Key{})
		if err == nil && m != nil {
			if shape := shapeOf(m); before != shape {
				made += difference(before, shape)
				before, since = shape, 0
			}
		}
		kind := f.Rand.IntN(12)
		if len(kinds) > 0 && kind > 3 {
			kind, kinds = kinds[0], kinds[1:]
		}
		switch kind {
		case 0:
			f.Kill(f.Any())
			f.start(true)
		case 1:
			cont := f.Stop(f.Any())
			f.Pause(500, 2500)
			cont()
		case 2:
			f.Leave(f.Any())
			f.start(true)
		case 3:
			if f.Served() {
				f.StopStore(200, 1500)
			}
		default:
		}
		f.Pause(50, 300)
	}
	return made
}

func (f *chaos) effects() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.made)
}

func shapeOf(m *sharding.Map) string {
	var b strings.Builder
	for _, r := range m.All() {
		fmt.Fprintf(&b, "%x ", r.From)
	}
	return b.String()
}

// difference returns how many boundaries occur in only one of two shapes.
func difference(a, b string) (n int) {
	if a == "" {
		return 0
	}
	x, y := strings.Fields(a), strings.Fields(b)
	for _, h := range x {
		if !slices.Contains(y, h) {
			n++
		}
	}
	for _, h := range y {
		if !slices.Contains(x, h) {
			n++
		}
	}
	return n
}

func (f *chaos) settle(b core.Backend) {
	f.mu.Lock()
	before := map[string]int{}
	for k, n := range f.acked {
		before[k] = n
	}
	f.mu.Unlock()
	var waits []string
	if !ample.Soon(f.Context(), func() bool {
		waits = nil
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := range keys {
			if f.acked[key(i)] <= before[key(i)] {
				waits = append(waits, key(i))
			}
		}
		return len(waits) == 0
	}) {
		m, _, err := sharding.ReadPlans(f.Context(), b, seam.Key{})
		f.Fatalf("%v after the last fault nobody serves %v: %+v, %v", ample.Time, waits, m, err)
	}
}

// whole checks that each item is in the shard that the map names.
func (f *chaos) whole(b core.Backend) {
	m, _, err := sharding.ReadPlans(f.Context(), b, seam.Key{})
	if err != nil {
		f.Fatal(err)
	}
	has := map[string]bool{}
	for shard := range m.All() {
		list, err := b.List(f.Context(), core.ShardID(shard), "k/item-", 0, 0)
		if err != nil {
			f.Fatal(err)
		}
		for _, it := range list {
			name := strings.TrimPrefix(it.Key, "k/")
			has[name] = has[name] || m.Shard(name) == shard && string(it.Value) == name
		}
	}
	for i := range *items {
		if !has[item(i)] {
			f.Errorf("%s is not at %s", item(i), m.Shard(item(i)))
		}
	}
}

func (f *chaos) check(b core.Backend) (entries int) {
	written := map[string][]int{}
	for i, absent := 0, 0; absent < 20; i++ {
		shard := core.ShardID(fmt.Sprintf("k-%04d", i))
		for after := core.Seq(0); ; {
			page, err := b.ReadLog(f.Context(), shard, after, 1000)
			if err != nil {
				f.Fatal(err)
			}
			if len(page.Entries) == 0 {
				if absent++; after > 0 {
					absent = 0
				}
				break
			}
			for _, e := range page.Entries {
				var at booking
				if err := json.NewDecoder(bytes.NewReader(e.Payload)).Decode(&at); err != nil && !errors.Is(err, io.EOF) {
					f.Fatal(err)
				}
				written[at.Key] = append(written[at.Key], at.Count)
				entries++
				after = e.Seq
			}
		}
	}
	f.whole(b)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range keys {
		counts := written[key(i)]
		slices.Sort(counts)
		for n, c := range counts {
			if c != n+1 {
				f.Errorf("%s: count %d stands where %d should: two owned it, or an entry is lost", key(i), c, n+1)
				break
			}
		}
		if len(counts) < f.acked[key(i)] {
			f.Errorf("%s: %d written, %d acknowledged: an entry is lost", key(i), len(counts), f.acked[key(i)])
		}
		for n := every; n < len(counts); n += every {
			x, times := payment(key(i), n), len(f.made[payment(key(i), n)])
			for _, k := range f.made[x] {
				if !f.honours {
					times += k - 1
				}
			}
			if times > 1 || times == 0 && !f.doubt[x] {
				f.Errorf("the effect %s was made %v times; keys honoured %v, in doubt %v", x, f.made[x], f.honours, f.doubt[x])
			}
		}
	}
	for _, x := range f.twice {
		f.Error("acknowledged twice: " + x)
	}
	return entries
}
