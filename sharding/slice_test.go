package sharding

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/sharding/assign"
)

// divider is an assigner that also plans requested splits and merges.
type divider struct {
	assign.Balance

	mu     sync.Mutex
	splits map[string][]uint64
	merges map[string]string
	random *rand.Rand // if not nil, it divides at random
	made   int
}

// ask makes the next plans split and merge as requested. It replaces earlier requests.
func (d *divider) ask(splits map[string][]uint64, merges map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.splits, d.merges = splits, merges
}

func (d *divider) Plan(c *assign.Cluster) *assign.Plan {
	p := d.Balance.Plan(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	index := map[string]int32{}
	for i := range c.Shards {
		index[c.Shards[i].Name] = int32(i)
	}
	for shard, at := range d.splits {
		i, ok := index[shard]
		switch {
		case !ok:
		case !c.Shards[i].Range.Has(at[0]):
			delete(d.splits, shard) // the split is done
		case !c.Shards[i].Busy:
			p.Splits = append(p.Splits, assign.Split{Shard: i, At: at})
		}
	}
	for from, to := range d.merges {
		i, k := index[from], index[to]
		if !c.Shards[i].Busy && !c.Shards[k].Busy {
			p.Merges = append(p.Merges, assign.Merge{From: i, To: k})
		} else if c.Shards[i].Range.Empty() {
			delete(d.merges, from)
		}
	}
	if d.random != nil {
		d.divide(c, p)
	}
	return p
}

func (d *divider) divide(c *assign.Cluster, p *assign.Plan) {
	for i := range c.Shards {
		s := &c.Shards[i]
		if s.Range.Empty() || s.Busy || d.random.IntN(3) > 0 {
			continue
		}
		width := s.Range.To - 1 - s.Range.From
		if len(c.Shards) < 8 && width > 1 {
			p.Splits = append(p.Splits, assign.Split{Shard: int32(i), At: []uint64{s.Range.From + 1 + d.random.Uint64N(width)}})
			d.made++
			continue
		}
		for k := range c.Shards {
			if o := &c.Shards[k]; !o.Busy && !o.Range.Empty() && o.Range.From == s.Range.To && s.Range.To != 0 {
				p.Merges = append(p.Merges, assign.Merge{From: int32(i), To: int32(k)})
				d.made++
				return
			}
		}
	}
}

// ledger is an application that counts per key, in an item and in the log.
type ledger struct {
	mu    sync.Mutex
	acked map[string]int // by key: the highest count acknowledged
	twice []string

	honours bool                      // the provider performs each effect once for each idempotency key
	made    map[string]map[string]int // by effect, and by idempotency key
	doubt   map[string]bool           // effects whose outcome is unknown
}

// effectEvery is how many bookings of a key lead to one effect.
const effectEvery = 5

func effectKey(key string, count int) string { return fmt.Sprintf("pay/%s/%d", key, count) }

const ledgerKeys = 60

func ledgerKey(i int) string { return fmt.Sprintf("key-%d", i) }

type booking struct {
	Key   string
	Count int
}

// copyItems is a Take that copies the items of a range.
func copyItems(b core.Backend, k Keyspace) Take {
	return func(ctx context.Context, from string, r assign.Range) ([]core.Op, error) {
		items, err := b.List(ctx, core.ShardID(from), "k/", 0, 0)
		if err != nil {
			return nil, err
		}
		ops := []core.Op{core.Put(reportKey, nil), core.Put(noteKey, []byte("of the giver"))} // left out
		for _, it := range items {
			if r.Has(k.Of(strings.TrimPrefix(it.Key, "k/"))) {
				ops = append(ops, core.Put(it.Key, it.Value))
			}
		}
		return ops, nil
	}
}

func (l *ledger) serve(m *member) core.Handler {
	return func(ctx context.Context, lease *core.Lease) error {
		s, err := m.OpenSlice(ctx, lease, func(ctx context.Context, from string, r assign.Range) ([]core.Op, error) {
			effects, err := effect.Take(ctx, m.b, lease, from, func(key string) bool {
				return r.Has(m.o.Keyspace.Of(strings.Split(key, "/")[1]))
			})
			if err != nil {
				return nil, err
			}
			items, err := copyItems(m.b, m.o.Keyspace)(ctx, from, r)
			return append(items, effects...), err
		})
		if err != nil {
			return err
		}
		defer s.Close()
		effects, err := effect.Open(ctx, lease, &effect.Options{Repeatable: l.honours, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer effects.Close()
		for ctx.Err() == nil {
			for i := range ledgerKeys {
				if err := s.Do(ledgerKey(i), func() error { return l.book(lease, effects, ledgerKey(i)) }); lease.Err() != nil {
					return err
				}
			}
			pause(ctx, 300*time.Millisecond)
		}
		return nil
	}
}

func (l *ledger) book(lease *core.Lease, effects *effect.Ledger, key string) error {
	item, err := lease.Get(lease.Context(), "k/"+key)
	if err != nil {
		return err
	}
	book := booking{Key: key}
	if item != nil {
		if err := json.Unmarshal(item.Value, &book); err != nil {
			return err
		}
	}
	if book.Count > 0 && book.Count%effectEvery == 0 { // before the next booking, so that no effect is forgotten
		if err := l.pay(lease, effects, effectKey(key, book.Count)); err != nil {
			return err
		}
	}
	book.Count++
	value, _ := json.Marshal(book)
	if _, err := lease.Commit(lease.Context(), core.Put("k/"+key, value), core.Append(value)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acked[key] >= book.Count {
		l.twice = append(l.twice, fmt.Sprintf("%s: %d after %d", key, book.Count, l.acked[key]))
	}
	l.acked[key] = book.Count
	return nil
}

// pay performs an effect that takes a while and may be interrupted.
func (l *ledger) pay(lease *core.Lease, effects *effect.Ledger, key string) error {
	_, err := effects.Do(lease.Context(), key, func(ctx context.Context, id string) ([]byte, error) {
		pause(ctx, 20*time.Millisecond)
		l.mu.Lock()
		if l.made[key] == nil {
			l.made[key] = map[string]int{}
		}
		if !l.honours || l.made[key][id] == 0 {
			l.made[key][id]++
		}
		l.mu.Unlock()
		if !pause(ctx, 20*time.Millisecond) {
			return nil, context.Cause(ctx) // the answer is lost
		}
		return nil, nil
	})
	if errors.Is(err, effect.ErrInDoubt) && lease.Err() == nil {
		l.mu.Lock()
		l.doubt[key] = true
		l.mu.Unlock()
		return nil
	}
	return err
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

// Ranges are split and merged at random under load, while members crash, leave and join. Each key's
// count continues without a gap, and no count is written twice, so no key had two owners.
func TestDivideUnderLoad(t *testing.T) {
	for seed := range uint64(share.Of(t, "seeds", 4, 1)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			bubble(t, func(w *world) {
				l := &ledger{acked: map[string]int{}, honours: seed%2 == 0, made: map[string]map[string]int{}, doubt: map[string]bool{}}
				divide := &divider{random: rand.New(rand.NewPCG(seed, 1))}
				k := Keyspace{Name: "orders", Shards: 3}
				start := func(node string) {
					w.member(node, func(m *member, o *Options) {
						o.Shards, o.Keyspace, o.Logger, o.Assigner = nil, k, nil, divide
						o.Quarantine.Deaths = -1 // splits and merges pass the deaths on to all shards
						m.handler = func(ctx context.Context, lease *core.Lease) error { return l.serve(m)(ctx, lease) }
					})
				}
				for i := range 3 {
					start(fmt.Sprintf("n%d", i))
				}
				for i := range 12 {
					time.Sleep(3 * ttl)
					if i%3 == 1 {
						w.members[0].crash()
					} else if err := w.members[0].leaveNow(); err != nil {
						w.Error(err)
					}
					w.members = w.members[1:]
					start(fmt.Sprintf("n%d", i))
				}
				divide.mu.Lock()
				divide.random = nil
				made := divide.made
				divide.mu.Unlock()
				time.Sleep(5 * ttl)
				before := l.counts()
				time.Sleep(5 * ttl)
				after := l.counts()
				for i := range ledgerKeys {
					if key := ledgerKey(i); after[key] <= before[key] {
						w.Errorf("%s stands at %d", key, after[key])
					}
				}
				last := w.members[0].assigned()
				if len(last.changes) > 0 || made < 20 || last.next < 10 {
					w.Errorf("%d splits and merges were made, the next shard is %d, and these are not complete: %+v", made, last.next, last.changes)
				}
				for _, m := range w.members {
					if err := m.leaveNow(); err != nil {
						w.Error(err)
					}
				}
				total := l.check(w, k, last.next)
				w.Logf("%d bookings of %d keys and %d effects, %d in doubt, through %d splits and merges", total, ledgerKeys, len(l.made),
					len(l.doubt), made)
			})
		})
	}
}

func (l *ledger) check(w *world, k Keyspace, shards int) (total int) {
	b, err := memory.Open(w.Context(), w.store, "test", nil)
	if err != nil {
		w.Fatal(err)
	}
	defer b.Close()
	written := map[string][]int{}
	for i := range shards {
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
		for n := effectEvery; n < len(counts); n += effectEvery {
			x, times := effectKey(key, n), 0
			for _, k := range l.made[x] {
				times += k
			}
			if times > 1 || times == 0 && !l.doubt[x] || l.honours && l.doubt[x] {
				w.Errorf("the effect %s was made %v times; in doubt %v", x, l.made[x], l.doubt[x])
			}
		}
	}
	for _, x := range l.twice {
		w.Error("acknowledged twice: " + x)
	}
	return total
}

// keyedMember returns a member with a keyspace of two shards, whose assigner divides on request.
func keyedMember(w *world, node string, d *divider, handler func(m *member, ctx context.Context, lease *core.Lease) error) *member {
	return w.member(node, func(m *member, o *Options) {
		o.Shards, o.Keyspace, o.Assigner, o.Logger = nil, Keyspace{Name: "orders", Shards: 2}, d, nil
		o.Loads = func(context.Context) (map[string]float64, error) { return nil, nil } // the assigner plans in each interval
		m.handler = func(ctx context.Context, lease *core.Lease) error { return handler(m, ctx, lease) }
	})
}

func (w *world) await(what string, within time.Duration, f func() bool) {
	w.Helper()
	for from := time.Now(); !f(); time.Sleep(time.Millisecond) {
		if time.Since(from) > within {
			w.Fatalf("%s did not come within %v", what, within)
		}
	}
}

func open(take Take) func(m *member, ctx context.Context, lease *core.Lease) error {
	return func(m *member, ctx context.Context, lease *core.Lease) error {
		s, err := m.OpenSlice(ctx, lease, take)
		if err != nil {
			return err
		}
		defer s.Close()
		<-ctx.Done()
		return nil
	}
}

// Close ends background work and waits until it has ended, so a handler leaves no Take behind.
func TestCloseJoinsTake(t *testing.T) {
	bubble(t, func(w *world) {
		d := &divider{splits: map[string][]uint64{"orders-0000": {1 << 60}}}
		joined := make(chan bool, 1)
		keyedMember(w, "a", d, func(m *member, ctx context.Context, lease *core.Lease) error {
			taking, took := make(chan struct{}), false
			s, err := m.OpenSlice(ctx, lease, func(ctx context.Context, _ string, _ assign.Range) ([]core.Op, error) {
				close(taking)
				<-ctx.Done()
				time.Sleep(ttl / 10) // like a copy that is not interrupted immediately
				took = true
				return nil, ctx.Err()
			})
			if err != nil {
				return err
			}
			defer s.Close()
			if lease.Shard() == "orders-0002" { // this shard gets keys of orders-0000
				<-taking
				s.Close()
				joined <- took
			}
			<-ctx.Done()
			return nil
		})
		if !<-joined {
			w.Error("Take goes on after Close")
		}
	})
}

// While a range moves, its keys are refused with an error that names the new shard. All other keys
// are served.
func TestKeysInBetween(t *testing.T) {
	bubble(t, func(w *world) {
		d := &divider{}
		release := make(chan struct{})
		a := keyedMember(w, "a", d, open(func(ctx context.Context, from string, r assign.Range) ([]core.Op, error) {
			if r != (assign.Range{From: 1 << 60, To: 1 << 63}) {
				w.fail(fmt.Errorf("takes %v from %s", r, from))
			}
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil, ctx.Err()
		}))
		w.await("a slice of each shard", 5*ttl, func() bool { return a.slice("orders-0000") != nil && a.slice("orders-0001") != nil })
		giver := a.slice("orders-0000")
		kept, given := keyIn(a, assign.Range{From: 0, To: 1 << 60}), keyIn(a, assign.Range{From: 1 << 60, To: 1 << 63})
		block := make(chan struct{})
		entered := make(chan error, 1)
		go func() {
			entered <- giver.Do(given, func() error { <-block; return nil })
		}()
		d.ask(map[string][]uint64{"orders-0000": {1 << 60}}, nil)
		var moved *MovedError
		w.await("the refusal", 2*ttl, func() bool { return errors.As(giver.Check(given), &moved) })
		if moved.To != "orders-0002" || !errors.Is(moved, ErrMoved) {
			w.Errorf("the error names %q", moved.To)
		}
		n, err := a.noted(w.Context(), "orders-0000")
		if err != nil || n.Map != 0 {
			w.Errorf("the range is noted as given (%+v, %v), while a call for it goes on", n, err)
		}
		close(block)
		if err := <-entered; err != nil {
			w.Error(err)
		}
		w.await("the new shard", 2*ttl, func() bool { return a.slice("orders-0002") != nil })
		taker := a.slice("orders-0002")
		time.Sleep(2 * ttl)
		if giver.Check(kept) != nil || !errors.Is(giver.Check(given), ErrMoved) || !errors.Is(taker.Check(given), ErrMoved) || !errors.Is(taker.Check(kept), ErrMoved) {
			w.Errorf("in between: %v, %v; %v, %v", giver.Check(kept), giver.Check(given), taker.Check(given), taker.Check(kept))
		}
		if _, err := taker.Commit(w.Context(), given, core.Put("x", nil)); !errors.Is(err, ErrMoved) || !core.NotApplied(err) ||
			core.NotApplied(fmt.Errorf("%w: %w", core.ErrUnknown, err)) {
			w.Errorf("a commit to the taker in between: %v", err)
		}
		close(release)
		w.await("the taken range", ttl, func() bool { return taker.Check(given) == nil })
		if _, err := taker.Commit(w.Context(), given, core.Put("x", nil)); err != nil {
			w.Error(err)
		}
		r, err := NewRouter(a.e, a.Manager)
		if err != nil {
			w.Fatal(err)
		}
		if at, err := r.OwnerOfKey(given); err != nil || at.Shard != "orders-0002" || at.Node != "a" {
			w.Errorf("the key is routed to %+v, %v", at, err)
		}
		// A merge ends the giver, and members no longer contend for its name.
		d.ask(nil, map[string]string{"orders-0002": "orders-0001"})
		heir := a.slice("orders-0001")
		w.await("the merge", 2*ttl, func() bool { return heir.Check(given) == nil })
		w.await("the end of the giver", 2*ttl, func() bool { return a.slice("orders-0002") == nil && a.Map().Len() == 2 })
		if got, whole := heir.Range(); got != (assign.Range{From: 1 << 60, To: 0}) || !whole {
			w.Errorf("the heir has %v, whole %v", got, whole)
		}
	})
}

func keyIn(m *member, r assign.Range) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("key-%d", i); r.Has(m.o.Keyspace.Of(key)) {
			return key
		}
	}
}

// A call that does not return does not block its keys for long. The keys are served again, and the
// change continues when the call has returned.
func TestCallThatDoesNotReturn(t *testing.T) {
	bubble(t, func(w *world) {
		d := &divider{}
		a := keyedMember(w, "a", d, open(nil))
		w.await("the slice", 5*ttl, func() bool { return a.slice("orders-0000") != nil })
		s := a.slice("orders-0000")
		given := keyIn(a, assign.Range{From: 1 << 60, To: 1 << 63})
		block := make(chan struct{})
		go func() { _ = s.Do(given, func() error { <-block; return nil }) }()
		d.ask(map[string][]uint64{"orders-0000": {1 << 60}}, nil)
		w.await("the refusal", 2*ttl, func() bool { return s.Check(given) != nil })
		from := time.Now()
		w.await("the service", drainBudget+ttl, func() bool { return s.Check(given) == nil })
		if took := time.Since(from); took < drainBudget-ttl {
			w.Errorf("it was refused for %v only", took)
		}
		close(block)
		w.await("the split", 3*drainBudget, func() bool { r, whole := s.Range(); return whole && r == assign.Range{From: 0, To: 1 << 60} })
	})
}

// A member that is configured with a different hash serves no shard of the keyspace, and makes no
// plans.
func TestOtherKeyspaceIsRefused(t *testing.T) {
	bubble(t, func(w *world) {
		a := keyedMember(w, "a", &divider{}, open(nil))
		w.await("the shards", 5*ttl, func() bool { return a.slice("orders-0001") != nil })
		b := w.member("b", func(m *member, o *Options) {
			o.Shards, o.Keyspace, o.Logger = nil, Keyspace{Name: "orders", Shards: 8, Hash: keyspace.HashFNV}, nil
			m.handler = func(ctx context.Context, lease *core.Lease) error {
				_, err := m.OpenSlice(ctx, lease, nil)
				w.fail(fmt.Errorf("b has %s: %w", lease.Shard(), err))
				return err
			}
		})
		time.Sleep(5 * ttl)
		if err := a.leaveNow(); err != nil {
			w.Error(err)
		}
		time.Sleep(5 * ttl)
		before := b.assigned().number
		time.Sleep(5 * ttl)
		if t := b.assigned(); t.keys.Hash != "" || t.number != before {
			w.Errorf("b plans for hash %q: plan %d came after %d", t.keys.Hash, t.number, before)
		}
	})
}

type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) of(what, shard string) (n int, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.all.String()) {
		if strings.Contains(line, what) && strings.Contains(line, "shard="+shard+" ") {
			n++
			text = line
		}
	}
	return n, text
}

// If the change of a range does not end, the reason is logged. The test sets slog.Default, so no
// other test runs at the same time.
func TestChangeThatTakesLong(t *testing.T) {
	var log lines
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	bubbleAlone(t, func(w *world) {
		d := &divider{splits: map[string][]uint64{"orders-0000": {1 << 60}, "orders-0001": {1<<63 + 1}}}
		keyedMember(w, "a", d, func(m *member, ctx context.Context, lease *core.Lease) error {
			if lease.Shard() == "orders-0001" { // like a handler that does not open the slice
				<-ctx.Done()
				return nil
			}
			return open(func(ctx context.Context, from string, _ assign.Range) ([]core.Op, error) {
				if from == "orders-0000" {
					return nil, errors.New("the copy failed")
				}
				return nil, nil
			})(m, ctx, lease)
		})
		const late, again = "is not complete", "is tried again"
		time.Sleep(sayAfter - time.Second)
		for _, shard := range []string{"orders-0000", "orders-0002", "orders-0003"} {
			if n, text := log.of(late, shard); n > 0 {
				w.Errorf("before its time: %s", text)
			}
		}
		time.Sleep(time.Minute)
		taker, waiting := "orders-0002", "orders-0003"
		if n, _ := log.of(again, taker); n == 0 {
			taker, waiting = waiting, taker
		}
		if n, text := log.of(again, taker); n != 1 || !strings.Contains(text, "the copy failed") {
			w.Errorf("%s: %d lines, the last is %q: want one with the error, before the range goes back", taker, n, text)
		}
		if n, text := log.of(late, waiting); n != 1 || !strings.Contains(text, "waits_for=orders-0001") {
			w.Errorf("%s: %d lines, the last is %q: want one with the giver", waiting, n, text)
		}
		time.Sleep(time.Minute)
		if n, text := log.of(late, waiting); n != 2 {
			w.Errorf("%d lines a minute later, the last is %q", n, text)
		}
	})
}

type memberHandler func(m *member, ctx context.Context, l *core.Lease) error

// plans returns a member with tables that the test makes. It serves each shard with the given
// handler.
func plans(w *world, t *assignments, handlers map[string]memberHandler) *member {
	m := w.build("a", func(m *member, o *Options) {
		o.Shards, o.Keyspace, o.Logger = nil, Keyspace{Name: "k", Shards: 2}, nil
	})
	m.ran <- nil // the member does not run
	m.setTable(t)
	for shard, h := range handlers {
		if err := m.e.Contend(func(ctx context.Context, l *core.Lease) error { return h(m, ctx, l) }, shard); err != nil {
			w.Fatal(err)
		}
	}
	return m
}

func idle(_ *member, ctx context.Context, _ *core.Lease) error {
	<-ctx.Done()
	return nil
}

func divided(w *world, t *assignments, c *planChange) *assignments {
	w.Helper()
	c.Number = t.number + 1
	next, err := t.apply(c)
	if err != nil {
		w.Fatal(err)
	}
	return next
}

// Regardless of the plans, a giver does not forget its gifts before they are taken. Otherwise, no
// shard would ever serve these ranges.
func TestNoteIsNotForgotten(t *testing.T) {
	bubble(t, func(w *world) {
		take := make(chan struct{})
		table := keyed(2)
		m := plans(w, table, map[string]memberHandler{
			"k-0000": open(nil),
			"k-0002": func(_ *member, ctx context.Context, l *core.Lease) error {
				<-take
				r := assign.Range{From: 1 << 60, To: 1 << 63}
				value, _ := json.Marshal(note{Map: 1, Range: &r})
				_, err := l.Commit(l.Context(), core.Put(noteKey, value))
				<-ctx.Done()
				return err
			},
			"k-0003": idle,
		})
		w.await("the slice", 5*ttl, func() bool { return m.slice("k-0000") != nil })
		table = divided(w, table, &planChange{Splits: []assign.Split{{Shard: 0, At: []uint64{1 << 60}}}})
		m.setTable(table)
		noted := func() int64 {
			n, err := m.noted(w.Context(), "k-0000")
			if err != nil {
				w.Fatal(err)
			}
			return n.Map
		}
		w.await("the note", 5*ttl, func() bool { return noted() == 1 })
		table = divided(w, table, &planChange{Settled: []int32{0}}) // although the change is not complete
		table = divided(w, table, &planChange{Splits: []assign.Split{{Shard: 0, At: []uint64{1 << 59}}}})
		m.setTable(table)
		time.Sleep(10 * ttl)
		if n := noted(); n != 1 {
			w.Errorf("the note is that of plan %d, before what it gave was taken", n)
		}
		close(take)
		w.await("the next note", 5*ttl, func() bool { return noted() == 3 })
	})
}

// If the note of a shard that was split off is gone, the shard does not begin again, because its
// later gifts are unknown. The error states what to do.
func TestLostNote(t *testing.T) {
	bubble(t, func(w *world) {
		opened := make(chan error, 1)
		table := divided(w, keyed(2), &planChange{Splits: []assign.Split{{Shard: 0, At: []uint64{1 << 60}}}})
		table = divided(w, table, &planChange{Settled: []int32{0}})
		plans(w, table, map[string]memberHandler{"k-0002": func(m *member, ctx context.Context, l *core.Lease) error {
			_, err := m.OpenSlice(ctx, l, nil)
			opened <- err
			<-ctx.Done()
			return nil
		}})
		if err := <-opened; !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), noteKey) {
			w.Errorf("%v, want ErrInvalid with the item", err)
		}
	})
}

// A second slice of one lease is refused, because it would continue to serve the gifts of the first
// slice.
func TestSecondSlice(t *testing.T) {
	bubble(t, func(w *world) {
		opened := make(chan error, 2)
		plans(w, keyed(2), map[string]memberHandler{"k-0000": func(m *member, ctx context.Context, l *core.Lease) error {
			s, err := m.OpenSlice(ctx, l, nil)
			if err != nil {
				return err
			}
			_, err = m.OpenSlice(ctx, l, nil)
			opened <- err
			s.Close()
			s, err = m.OpenSlice(ctx, l, nil)
			opened <- err
			defer s.Close()
			<-ctx.Done()
			return nil
		}})
		if err := <-opened; !errors.Is(err, core.ErrInvalid) {
			w.Errorf("%v for the second slice, want ErrInvalid", err)
		}
		if err := <-opened; err != nil {
			w.Errorf("%v after the first one was closed", err)
		}
	})
}

// OpenSlice refuses a note that this package did not write, and shards outside the keyspace.
func TestNoteThatCannotBeRead(t *testing.T) {
	bubble(t, func(w *world) {
		opened := make(chan error, 2)
		plans(w, keyed(2), map[string]memberHandler{
			"k-0001": func(m *member, ctx context.Context, l *core.Lease) error {
				if _, err := l.Commit(ctx, core.Put(noteKey, []byte(`{"map":0}`))); err != nil {
					return err
				}
				_, err := m.OpenSlice(ctx, l, nil)
				opened <- err
				<-ctx.Done()
				return nil
			},
			"other": func(m *member, ctx context.Context, l *core.Lease) error {
				_, err := m.OpenSlice(ctx, l, nil)
				opened <- err
				<-ctx.Done()
				return nil
			},
		})
		for range 2 {
			if err := <-opened; !errors.Is(err, core.ErrInvalid) {
				w.Errorf("%v, want ErrInvalid", err)
			}
		}
	})
}

// If a call began before its shard got a range by a merge, and the shard later gives away the
// call's range, the giver waits for the call.
func TestCallBeforeAMerge(t *testing.T) {
	bubble(t, func(w *world) {
		d := &divider{}
		a := keyedMember(w, "a", d, open(nil))
		w.await("the slices", 5*ttl, func() bool { return a.slice("orders-0000") != nil && a.slice("orders-0001") != nil })
		s, block := a.slice("orders-0000"), make(chan struct{})
		held := keyIn(a, assign.Range{From: 1 << 60, To: 1 << 63})
		ended := make(chan error, 1)
		go func() { ended <- s.Do(held, func() error { <-block; return nil }) }()
		d.ask(nil, map[string]string{"orders-0001": "orders-0000"})
		w.await("the merge", 5*ttl, func() bool { r, whole := s.Range(); return whole && r == assign.Range{} })
		d.ask(map[string][]uint64{"orders-0000": {1 << 60}}, nil)
		w.await("the refusal", 5*ttl, func() bool { return s.Check(held) != nil })
		if n, err := a.noted(w.Context(), "orders-0000"); err != nil || len(n.Gave) > 0 {
			w.Errorf("the range is noted as given (%+v, %v), while a call for it goes on", n, err)
		}
		close(block)
		if err := <-ended; err != nil {
			w.Error(err)
		}
		w.await("the split", 5*ttl, func() bool { r, whole := s.Range(); return whole && r == assign.Range{From: 0, To: 1 << 60} })
	})
}

// W5: a slice is closed while its note is in flight, and opened again under the same lease. It then
// serves nothing that the note gives away.
func TestSliceOpenedAgain(t *testing.T) {
	bubble(t, func(w *world) {
		d := &divider{Balance: assign.Balance{Rules: assign.Rules{Pin: map[string]string{"orders-0000": "a", "orders-0001": "b", "orders-0002": "b"}}}}
		again, served := make(chan struct{}), make(chan error, 1)
		given := assign.Range{From: 1 << 60, To: 1 << 63}
		handler := func(m *member, ctx context.Context, lease *core.Lease) error {
			if lease.Shard() != "orders-0000" {
				return open(copyItems(m.b, m.o.Keyspace))(m, ctx, lease)
			}
			s, err := m.OpenSlice(ctx, lease, nil)
			if err != nil {
				return err
			}
			select {
			case <-again:
			case <-ctx.Done():
				s.Close()
				return nil
			}
			s.Close()
			if s, err = m.OpenSlice(ctx, lease, nil); err != nil {
				served <- err
				return err
			}
			defer s.Close()
			key := keyIn(m, given)
			_, err = s.Commit(ctx, key, core.Put("k/"+key, nil))
			served <- err
			<-ctx.Done()
			return nil
		}
		b := keyedMember(w, "b", d, handler)
		w.await("b's slice", 10*ttl, func() bool { return b.slice("orders-0001") != nil })
		a := keyedMember(w, "a", d, handler)
		w.await("a's slice", 20*ttl, func() bool { return a.slice("orders-0000") != nil && b.slice("orders-0001") != nil })
		a.link.Set(kvfault.Write, kvfault.HoldRequest)
		d.ask(map[string][]uint64{"orders-0000": {given.From}}, nil)
		giver := a.slice("orders-0000")
		w.await("the note", 10*ttl, func() bool { giver.mu.Lock(); defer giver.mu.Unlock(); return giver.waits == "the store" })
		if err := a.link.AwaitHeld(w.Context(), 1); err != nil {
			w.Fatal(err)
		}
		time.Sleep(ttl / 10) // the note is in flight
		close(again)
		time.Sleep(5 * ttl)
		a.link.Heal()
		a.link.Deliver()
		if err := <-served; !errors.Is(err, ErrMoved) {
			w.Errorf("a write for a key that the shard gave away: %v", err)
		}
		key := keyIn(a, given)
		w.await("the taker", 10*ttl, func() bool { t := b.slice("orders-0002"); return t != nil && t.Check(key) == nil })
		if s := a.slice("orders-0000"); s.Check(key) == nil {
			w.Error("two shards serve the key")
		}
	})
}

type narrow struct {
	core.Backend
	ops int
}

func (n narrow) Info() driver.Info {
	i := n.Backend.Info()
	i.Limits.WriteOps = n.ops
	return i
}

// A range with more items than fit into one commit is taken in pieces.
func TestLargeRange(t *testing.T) {
	bubble(t, func(w *world) {
		const most = 16
		w.wrap = func(b core.Backend) core.Backend { return narrow{b, most} }
		d := &divider{}
		a := keyedMember(w, "a", d, func(m *member, ctx context.Context, lease *core.Lease) error {
			return open(copyItems(m.b, m.o.Keyspace))(m, ctx, lease)
		})
		given := assign.Range{From: 1 << 60, To: 1 << 63}
		w.await("the slice", 5*ttl, func() bool { return a.slice("orders-0000") != nil && a.slice("orders-0001") != nil })
		giver := a.slice("orders-0000")
		var keys []string
		for i := 0; len(keys) < 10*most+3; i++ {
			if key := fmt.Sprint("large-", i); given.Has(a.o.Keyspace.Of(key)) {
				keys = append(keys, key)
				if _, err := giver.Commit(w.Context(), key, core.Put("k/"+key, []byte(key))); err != nil {
					w.Fatal(err)
				}
			}
		}
		d.ask(map[string][]uint64{"orders-0000": {given.From}}, nil)
		w.await("the split", 10*ttl, func() bool { s := a.slice("orders-0002"); return s != nil && s.Check(keys[0]) == nil })
		for _, key := range keys {
			if item, err := a.b.Get(w.Context(), "orders-0002", "k/"+key); err != nil || item == nil || string(item.Value) != key {
				w.Fatalf("%s at the taker: %v, %v", key, item, err)
			}
		}
	})
}

// A range that cannot be taken goes back to its giver, and a later attempt may succeed.
func TestRangeGoesBack(t *testing.T) {
	type ask struct {
		splits map[string][]uint64
		merges map[string]string
	}
	h := func(i uint64) uint64 { return i << 60 }
	for name, c := range map[string]struct {
		ask
		take func(from string, r assign.Range) ([]core.Op, error)
		back assign.Range // the range that the giver serves again
		ends int          // shards
	}{
		"split, Take fails": {ask{splits: map[string][]uint64{"orders-0000": {h(1)}}},
			func(string, assign.Range) ([]core.Op, error) { return nil, errors.New("the copy failed") }, assign.Range{From: 0, To: h(8)}, 2},
		"split, an operation is too large": {ask{splits: map[string][]uint64{"orders-0000": {h(1)}}},
			func(string, assign.Range) ([]core.Op, error) {
				return []core.Op{core.Put("a", nil), core.Put("large", make([]byte, 8<<20)), core.Put("z", nil)}, nil
			}, assign.Range{From: 0, To: h(8)}, 2},
		"split, entries do not fit": {ask{splits: map[string][]uint64{"orders-0000": {h(1)}}},
			func(string, assign.Range) ([]core.Op, error) {
				return slices.Repeat([]core.Op{core.Append(nil)}, 20), nil
			}, assign.Range{From: 0, To: h(8)}, 2},
		"split in four, all fail": {ask{splits: map[string][]uint64{"orders-0000": {h(1), h(2), h(3)}}},
			func(string, assign.Range) ([]core.Op, error) { return nil, errors.New("the copy failed") }, assign.Range{From: 0, To: h(8)}, 2},
		"split in four, the third fails": {ask{splits: map[string][]uint64{"orders-0000": {h(1), h(2), h(3)}}},
			func(_ string, r assign.Range) ([]core.Op, error) {
				if r.From == h(2) {
					return nil, errors.New("the copy failed")
				}
				return nil, nil
			}, assign.Range{From: 0, To: h(3)}, 3},
		"merge into the next": {ask{merges: map[string]string{"orders-0000": "orders-0001"}},
			func(string, assign.Range) ([]core.Op, error) { return nil, errors.New("the copy failed") }, assign.Range{From: 0, To: h(8)}, 2},
		"merge into the one before": {ask{merges: map[string]string{"orders-0001": "orders-0000"}},
			func(string, assign.Range) ([]core.Op, error) { return nil, errors.New("") }, assign.Range{From: h(8), To: 0}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.wrap = func(b core.Backend) core.Backend { return narrow{b, 16} }
				d := &divider{}
				var works atomic.Bool
				var events []string
				a := w.member("a", func(m *member, o *Options) {
					o.Shards, o.Keyspace, o.Assigner, o.Logger = nil, Keyspace{Name: "orders", Shards: 2}, d, nil
					o.Loads = func(context.Context) (map[string]float64, error) { return nil, nil }
					o.OnRange = func(list []RangeEvent) {
						for _, e := range list {
							events = append(events, e.String())
						}
					}
					m.handler = func(ctx context.Context, lease *core.Lease) error {
						return open(func(_ context.Context, from string, r assign.Range) ([]core.Op, error) {
							if works.Load() {
								return nil, nil
							}
							return c.take(from, r)
						})(m, ctx, lease)
					}
				})
				served := func() (n int, all bool) { // each hash once, according to the map
					all = true
					for i := range uint64(16) {
						owners := 0
						for _, s := range a.openSlices() {
							if s.serving.Load().has.Has(h(i)) {
								owners++
								all = all && a.Map().ShardOf(h(i)) == s.lease.Shard()
							}
						}
						if owners > 1 {
							w.Fatalf("%d shards serve %x", owners, h(i))
						}
						all = all && owners == 1
					}
					return a.Map().Len(), all
				}
				w.await("the slices", 5*ttl, func() bool { _, all := served(); return all })
				giver := "orders-0000"
				if c.splits == nil {
					for giver = range c.merges {
					}
				}
				d.ask(maps.Clone(c.splits), maps.Clone(c.merges))
				w.await("the refusal", 5*ttl, func() bool { _, all := served(); return !all })
				time.Sleep(takeBudget)
				w.await("the return", 20*ttl, func() bool { _, all := served(); return all })
				if n, _ := served(); n != c.ends || a.slice(giver).serving.Load().has != c.back {
					w.Errorf("%d ranges, and %s has %v", n, giver, a.slice(giver).serving.Load().has)
				}
				w.await("the end of the change", 5*ttl, func() bool { return len(a.assigned().changes) == 0 })
				d.ask(maps.Clone(c.splits), maps.Clone(c.merges)) // the same request again, while the shard rests
				time.Sleep(30 * time.Second)
				if n, all := served(); !all || n != c.ends {
					w.Errorf("30 s later: %d ranges, all served %v", n, all)
				}
				begun := slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, "return of a range begun: not taken: ") })
				if !begun || !slices.Contains(events, "return of a range that could not be taken ended") {
					w.Errorf("no events with the reason: %q", events)
				}
				works.Store(true)
				if d.ask(nil, c.merges); c.splits != nil {
					d.ask(map[string][]uint64{giver: {h(1)}}, nil)
				}
				time.Sleep(restsFor - 35*time.Second)
				w.await("the next attempt", 10*ttl, func() bool {
					n, all := served()
					return all && (n == 1 || c.splits != nil && a.slice(giver).serving.Load().has == assign.Range{From: 0, To: h(1)})
				})
			})
		})
	}
}

// From a handler's context, package effect learns the keyspace of the shard.
func TestHandlerKnowsItsKeyspace(t *testing.T) {
	bubble(t, func(w *world) {
		names := make(chan [2]string, 10)
		w.member("a", func(m *member, o *Options) {
			o.Shards, o.Keyspace, o.Logger = []string{"jobs-0000"}, Keyspace{Name: "orders", Shards: 1}, nil
			m.handler = func(ctx context.Context, lease *core.Lease) error {
				names <- [2]string{lease.Shard(), keyspace.Of(ctx)}
				<-ctx.Done()
				return nil
			}
		})
		for range 2 {
			if got := <-names; got != [2]string{"jobs-0000", "jobs-0000"} && got != [2]string{"orders-0000", "orders"} {
				w.Errorf("the handler of %s has %q", got[0], got[1])
			}
		}
	})
}

// Slices keeps a Slice open while a handler would run. Calls that have begun delay the end of the
// lease, and later calls are refused.
func TestSlices(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a", func(m *member, o *Options) {
			o.Shards, o.Keyspace = nil, Keyspace{Name: "orders", Shards: 1}
			m.handler = Slices(nil)
		})
		var lease *core.Lease
		w.await("the slice is open", 10*ttl, func() bool {
			lease = m.e.Lease("orders-0000")
			return m.Slice(lease) != nil
		})
		s := m.Slice(lease)
		if r, whole := s.Range(); r != (assign.Range{}) || !whole {
			w.Errorf("it serves %v, %v", r, whole)
		}
		began, finish, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- s.Do("k", func() error {
				close(began)
				<-finish
				_, err := lease.Append(w.Context(), nil)
				return err
			})
		}()
		<-began
		asked, cancel := context.WithCancel(w.Context())
		cancel()
		_ = m.e.Withdraw(asked, "orders-0000") // does not wait
		time.Sleep(ttl)
		if lease.Err() != nil {
			w.Error("the lease ended before the call did")
		}
		if err := s.Do("k", func() error { return nil }); !errors.Is(err, ErrMoved) {
			w.Errorf("a call after the end: %v", err)
		}
		close(finish)
		if err := <-ended; err != nil {
			w.Error(err)
		}
		w.await("the slice is closed", ttl, func() bool { return m.Slice(lease) == nil })
		if m.Slice(nil) != nil {
			w.Error("no lease has a slice")
		}
		s.Close() // again
	})
}

func TestSlicesWithoutManager(t *testing.T) {
	t.Parallel()
	if err := Slices(nil)(t.Context(), nil); !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), "NewManager") {
		t.Error(err)
	}
}
