package sharding

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
)

// What a key hashes to never changes: it decides where data is.
func TestHashIsPermanent(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]uint64{
		"": 0xf52a15e9a9b5e89b, "a": 0x02c0bdbf481420f8, "customer-42": 0xe02a92178bccfd76, "Zürich": 0xc65e9341af283a5d, "\x00\xff": 0xa70bee94c6c8447b,
	} {
		if got := hash(key); got != want {
			t.Errorf("hash(%q) = %#016x, want %#016x", key, got, want)
		}
	}
	k := Keyspace{Name: "orders", Layouts: []int{1024}}
	for key, want := range map[string]string{"customer-42": "orders-0374", "Zürich": "orders-0605"} {
		if got := k.Shard(key); got != want {
			t.Errorf("%q is in %s, want %s", key, got, want)
		}
	}
	count := make([]int, 16)
	for i := range 160_000 {
		count[hash(fmt.Sprintf("key-%d", i))%16]++
	}
	if lo, hi := extremes(count); lo < 9_600 || hi > 10_400 {
		t.Errorf("160,000 keys are %d to %d a shard", lo, hi)
	}
}

func TestKeyspaceValidate(t *testing.T) {
	t.Parallel()
	for _, k := range []Keyspace{
		{Name: "a"}, {Name: "a", Layouts: []int{0}}, {Name: "a", Layouts: []int{4, 6}}, {Name: "a", Layouts: []int{4}, Digits: 10},
		{Name: "_a", Layouts: []int{4}}, {Name: "a/b", Layouts: []int{4}}, {Name: "a", Layouts: []int{1 << 30}},
	} {
		if err := k.Validate(); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", k, err)
		}
	}
	k := Keyspace{Name: "orders", Layouts: []int{8, 16, 4}}
	if err := k.Validate(); err != nil {
		t.Error(err)
	}
	if got := k.Specs(); !slices.Equal(got, []string{"orders-0000..15"}) {
		t.Errorf("shard set %v", got)
	}
	for _, s := range []string{"orders-1", "orders-00001", "order-0001", "orders-000x"} {
		if i, err := k.index(s); err == nil {
			t.Errorf("%s is shard %d", s, i)
		}
	}
}

// Whatever the order in which shards go from layout to layout, no key is ever
// served by two, and in the end each is served by one.
func TestLayoutsNeverOverlap(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(6, 6))
	for range 500 {
		k := Keyspace{Name: "k", Layouts: []int{1 + rng.IntN(4)}}
		for range 1 + rng.IntN(4) {
			n := k.shards()
			if by := 2 + rng.IntN(2); n%by == 0 && rng.IntN(2) == 0 {
				n /= by
			} else if n*by <= 32 {
				n *= by
			}
			k.Layouts = append(k.Layouts, n)
		}
		state := make([]cut, slices.Max(k.Layouts))
		for i := range state {
			state[i] = cut{1, true}
		}
		var keys []uint64
		for range 100 {
			keys = append(keys, rng.Uint64())
		}
		for done := false; !done; {
			done = true
			for range len(state) { // some of them, in any order
				i := rng.IntN(len(state))
				s := &state[i]
				if s.Taken && s.Layout < len(k.Layouts) {
					*s = cut{Layout: s.Layout + 1}
				} else if !s.Taken {
					ready := true
					for _, g := range k.givers(s.Layout, i) {
						ready = ready && state[g].Layout >= s.Layout
					}
					s.Taken = ready
				}
			}
			for i := range state {
				done = done && state[i] == cut{len(k.Layouts), true}
			}
			for _, h := range keys {
				n := 0
				for i, s := range state {
					if k.owns(s.Layout, i, h) && (s.Taken || k.owns(s.Layout-1, i, h)) {
						n++
					}
				}
				if n > 1 || done && n != 1 {
					t.Fatalf("key %x is served by %d in %+v (%v)", h, n, state, k.Layouts)
				}
			}
		}
	}
}

// ledger is an application: it counts per key, in an item and in the log.
type ledger struct {
	mu    sync.Mutex
	acked map[string]int // by key: the highest count acknowledged
	twice []string
}

const ledgerKeys = 60

func ledgerKey(i int) string { return fmt.Sprintf("key-%d", i) }

type booking struct {
	Key   string
	Count int
}

func (l *ledger) serve(k Keyspace, b core.Backend) core.Handler {
	return func(ctx context.Context, lease *core.Lease) error {
		s, err := OpenSlice(ctx, b, lease, k, func(ctx context.Context, from []string) ([]core.Op, error) {
			i, err := k.index(lease.Shard())
			if err != nil {
				return nil, err
			}
			var ops []core.Op
			for _, shard := range from {
				items, err := b.List(ctx, core.ShardID(shard), "k/", 0)
				if err != nil {
					return nil, err
				}
				for _, it := range items {
					if hash(strings.TrimPrefix(it.Key, "k/"))%uint64(k.shards()) == uint64(i) {
						ops = append(ops, core.Put(it.Key, it.Value))
					}
				}
			}
			return ops, nil
		})
		if err != nil {
			return err
		}
		defer s.Close()
		for ctx.Err() == nil {
			for i := range ledgerKeys {
				key := ledgerKey(i)
				if s.Check(key) != nil {
					continue
				}
				item, err := lease.Get(ctx, "k/"+key)
				if err != nil {
					return nil
				}
				book := booking{Key: key}
				if item != nil {
					if err := json.Unmarshal(item.Value, &book); err != nil {
						return err
					}
				}
				book.Count++
				value, _ := json.Marshal(book)
				if _, err := s.Commit(lease.Context(), key, core.Put("k/"+key, value), core.Append(value)); err == nil {
					l.mu.Lock()
					if l.acked[key] >= book.Count {
						l.twice = append(l.twice, fmt.Sprintf("%s: %d after %d", key, book.Count, l.acked[key]))
					}
					l.acked[key] = book.Count
					l.mu.Unlock()
				}
			}
			pause(ctx, 300*time.Millisecond)
		}
		return nil
	}
}

// From 4 shards to 8 and back to 4 under load, by rolling restarts with the new
// configuration: each key's count goes on without a gap, and no count is written
// twice, so no key was owned by two.
func TestReshardUnderLoad(t *testing.T) {
	bubble(t, func(w *world) {
		l := &ledger{acked: map[string]int{}}
		start := func(node string, k Keyspace) *member {
			return w.member(node, func(m *member, o *Options) {
				o.Shards, o.OnError = k.Specs(), nil
				m.handler = func(ctx context.Context, lease *core.Lease) error { return l.serve(k, m.b)(ctx, lease) }
			})
		}
		k := Keyspace{Name: "orders", Layouts: []int{4}}
		for i := range 3 {
			start(fmt.Sprintf("n%d", i), k)
		}
		time.Sleep(5 * ttl)
		for _, n := range []int{8, 4} {
			k.Layouts = append(slices.Clone(k.Layouts), n)
			for i := range 3 {
				time.Sleep(ttl)
				if i == 1 {
					w.members[0].crash()
				} else if err := w.members[0].leaveNow(); err != nil {
					w.Error(err)
				}
				w.members = w.members[1:]
				start(fmt.Sprintf("n%d", i), k)
			}
			before := l.counts()
			time.Sleep(10 * ttl)
			after := l.counts()
			for i := range ledgerKeys {
				if key := ledgerKey(i); after[key] <= before[key] {
					w.Errorf("%s stands at %d with %d shards", key, after[key], n)
				}
			}
			for i := range n {
				item, err := w.members[0].b.Get(w.Context(), core.ShardID(k.shard(i)), cutKey)
				if c, err2 := readCut(item); err != nil || err2 != nil || c != (cut{len(k.Layouts), true}) {
					w.Errorf("%s has come to %+v, %v %v", k.shard(i), c, err, err2)
				}
			}
		}
		for _, m := range w.members {
			if err := m.leaveNow(); err != nil {
				w.Error(err)
			}
		}
		b, err := memory.Open(w.Context(), w.store, "test", nil)
		if err != nil {
			w.Fatal(err)
		}
		defer b.Close()
		written, total := map[string][]int{}, 0
		for i := range 8 {
			for after := core.Seq(0); ; {
				page, err := b.ReadLog(w.Context(), core.ShardID(k.shard(i)), after, 1000)
				if err != nil {
					w.Fatal(err)
				}
				if len(page.Entries) == 0 {
					break
				}
				for _, e := range page.Entries {
					var book booking
					if err := json.NewDecoder(bytes.NewReader(e.Payload)).Decode(&book); err != nil {
						w.Fatal(err)
					}
					written[book.Key] = append(written[book.Key], book.Count)
					total++
					after = e.Seq
				}
			}
		}
		for i := range ledgerKeys {
			key := ledgerKey(i)
			counts := written[key]
			slices.Sort(counts)
			for n, c := range counts {
				if c != n+1 {
					w.Fatalf("%s: count %d stands where %d should", key, c, n+1)
				}
			}
			if len(counts) < l.acked[key] {
				w.Errorf("%s: %d written, %d acknowledged", key, len(counts), l.acked[key])
			}
		}
		for _, x := range l.twice {
			w.Error("acknowledged twice: " + x)
		}
		w.Logf("%d bookings of %d keys, through 4, 8 and 4 shards", total, ledgerKeys)
	})
}

func (l *ledger) counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for k, n := range l.acked {
		out[k] = n
	}
	return out
}

// Close ends and joins what goes on in the background, so that a handler leaves no
// Take behind.
func TestCloseJoinsTake(t *testing.T) {
	bubble(t, func(w *world) {
		k := Keyspace{Name: "orders", Layouts: []int{2, 4}}
		joined := make(chan bool, 1)
		w.member("a", func(m *member, o *Options) {
			o.Shards = k.Specs()
			m.handler = func(ctx context.Context, lease *core.Lease) error {
				taking, took := make(chan struct{}), false
				s, err := OpenSlice(ctx, m.b, lease, k, func(ctx context.Context, _ []string) ([]core.Op, error) {
					close(taking)
					<-ctx.Done()
					time.Sleep(ttl / 10) // as a copy that is not interrupted at once
					took = true
					return nil, ctx.Err()
				})
				if err != nil {
					return err
				}
				defer s.Close()
				if lease.Shard() == "orders-0002" { // which gets keys of orders-0000
					<-taking
					s.Close()
					joined <- took
				}
				<-ctx.Done()
				return nil
			}
		})
		if !<-joined {
			w.Error("Take goes on after Close")
		}
	})
}

// A process that does not know the layout a shard is in must not serve it.
func TestOlderConfigurationIsRefused(t *testing.T) {
	bubble(t, func(w *world) {
		errs := make(chan error, 1)
		k := Keyspace{Name: "orders", Layouts: []int{2, 4}}
		m := w.member("a", func(m *member, o *Options) {
			o.Shards = k.Specs()
			m.handler = func(ctx context.Context, lease *core.Lease) error {
				s, err := OpenSlice(ctx, m.b, lease, k, nil)
				if err == nil {
					err = s.Whole(ctx)
				}
				if err != nil || lease.Shard() != "orders-0001" {
					<-ctx.Done()
					return err
				}
				_, err = OpenSlice(ctx, m.b, lease, Keyspace{Name: "orders", Layouts: []int{2}}, nil)
				errs <- err
				<-ctx.Done()
				return nil
			}
		})
		if err := <-errs; !errors.Is(err, core.ErrInvalid) {
			w.Errorf("%v, want ErrInvalid", err)
		}
		_ = m
	})
}

func TestRouter(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.member("a")
		w.shares(ttl, map[string]int{"a": 30})
		k := Keyspace{Name: "orders", Layouts: []int{16}, Digits: 2}
		r, err := NewRouter(a.e, k)
		if err != nil {
			w.Fatal(err)
		}
		changes := r.Changes()
		first, err := changes.Next(w.Context())
		if err != nil || len(first) < 30 {
			w.Fatalf("%d routes at first, %v", len(first), err)
		}
		at, err := r.Owner("orders-07")
		if err != nil || at.Node != "a" || !at.Self || at.Token == 0 {
			w.Errorf("%+v, %v", at, err)
		}
		b := w.member("b")
		w.shares(2*interval, map[string]int{"a": 15, "b": 15})
		seen := map[string]Route{}
		ctx, cancel := context.WithTimeout(w.Context(), 5*interval)
		defer cancel()
		for {
			list, err := changes.Next(ctx)
			if err != nil {
				break
			}
			for _, x := range list {
				seen[x.Shard] = x
			}
		}
		n := 0
		for s, o := range w.owners() {
			if o == "b" {
				n++
				if seen[s].Node != "b" || seen[s].Self {
					w.Errorf("%s is b's; the subscription said %+v", s, seen[s])
				}
				if x, err := r.Owner(s); err != nil || !sameRoute(x, seen[s]) {
					w.Errorf("%s: %+v, %v; the subscription said %+v", s, x, err, seen[s])
				}
			}
		}
		if n != 15 {
			w.Errorf("b has %d shards", n)
		}
		if x, err := r.OwnerOfKey("customer-42"); err != nil || x.Shard != k.Shard("customer-42") {
			w.Errorf("%+v, %v", x, err)
		}
		if _, err := r.Owner("nobody"); !errors.Is(err, ErrNoOwner) {
			w.Errorf("%v, want ErrNoOwner", err)
		}
		b.crash()
		a.crash()
		if _, err := changes.Next(w.Context()); err == nil {
			for err == nil {
				_, err = changes.Next(w.Context())
			}
			if !errors.Is(err, core.ErrStopped) {
				w.Errorf("%v, want ErrStopped", err)
			}
		}
	})
}

// sameRoute compares what can change.
func sameRoute(x, y Route) bool {
	return x.Shard == y.Shard && x.Session == y.Session && x.Token == y.Token && x.Self == y.Self
}

// lines are what is logged to slog.Default meanwhile.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) of(shard string) (n int, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.all.String()) {
		if strings.Contains(line, "does not serve") && strings.Contains(line, "shard="+shard+" ") {
			n++
			text = line
		}
	}
	return n, text
}

// A shard that does not serve its keys says so, whatever the reason, and one that does
// says nothing. It sets slog.Default, so that nothing runs beside it.
func TestKeysThatAreNotServed(t *testing.T) {
	var log lines
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	bubbleAlone(t, func(w *world) {
		k := Keyspace{Name: "orders", Layouts: []int{2, 4, 8}}
		w.member("a", func(m *member, o *Options) {
			o.Shards = k.Specs()
			m.handler = func(ctx context.Context, lease *core.Lease) error {
				shard := lease.Shard()
				if shard == "orders-0001" { // as a member of the older configuration has it
					<-ctx.Done()
					return nil
				}
				s, err := OpenSlice(ctx, m.b, lease, k, func(ctx context.Context, _ []string) ([]core.Op, error) {
					if shard == "orders-0002" {
						<-ctx.Done()
					}
					return nil, ctx.Err()
				})
				if err != nil {
					return err
				}
				defer s.Close()
				if shard == "orders-0000" || shard == "orders-0004" { // as the page says
					if err := s.Whole(ctx); err != nil {
						return err
					}
				}
				<-ctx.Done() // the others do not ask
				return nil
			}
		})
		time.Sleep(sayAfter - time.Second)
		for i := range 8 {
			if n, text := log.of(k.shard(i)); n > 0 {
				w.Errorf("before its time: %s", text)
			}
		}
		time.Sleep(sayAgain)
		for shard, want := range map[string]string{
			"orders-0002": "look at its Take", "orders-0003": "waits_for=orders-0001", "orders-0007": "is whole in layout 2 of 3",
		} {
			if n, text := log.of(shard); n != 1 || !strings.Contains(text, want) {
				w.Errorf("%s: %d lines, the last is %q: want one with %q", shard, n, text, want)
			}
		}
		for _, shard := range []string{"orders-0000", "orders-0004"} {
			if n, text := log.of(shard); n != 0 {
				w.Errorf("%s is whole, and the log says %q", shard, text)
			}
		}
		time.Sleep(sayAgain)
		if n, text := log.of("orders-0007"); n != 2 {
			w.Errorf("%d lines after twice the time, the last is %q", n, text)
		}
	})
}
