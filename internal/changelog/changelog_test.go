package changelog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/internal/proof/watchless"
)

// meter counts a process's calls to a store without a watch, and the bytes of the
// answers.
type meter struct {
	changelog.Store
	onGet func(names []string) // before a Get returns
	// Before a batch is applied.
	onApply func(b *changelog.Batch)
	follow  func(ctx context.Context, prefixes []string, fn func(*kv.Page) error) error

	mu sync.Mutex
	costs
}

type costs struct {
	follows, gets, keys, ranges, writes int
	bytes                               int // of keys and values in pages
}

func (m *meter) take() costs {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.costs
	m.costs = costs{}
	return c
}

func (m *meter) count(f func(*costs)) {
	m.mu.Lock()
	f(&m.costs)
	m.mu.Unlock()
}

func weight(p *kv.Page) (n int) {
	for _, r := range p.Pairs {
		n += len(r.Key) + len(r.Value)
	}
	return n
}

func (m *meter) Apply(ctx context.Context, b *changelog.Batch) (*changelog.Outcome, error) {
	m.count(func(c *costs) { c.writes++ })
	if m.onApply != nil {
		m.onApply(b)
	}
	return m.Store.Apply(ctx, b)
}

func (m *meter) Get(ctx context.Context, names ...string) (*kv.Page, error) {
	p, err := m.Store.Get(ctx, names...)
	m.count(func(c *costs) { c.gets++; c.keys += len(names) })
	if err == nil {
		m.count(func(c *costs) { c.bytes += weight(p) })
	}
	if m.onGet != nil {
		m.onGet(names)
	}
	return p, err
}

func (m *meter) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	p, err := m.Store.Range(ctx, q)
	m.count(func(c *costs) { c.ranges++ })
	if err == nil {
		m.count(func(c *costs) { c.bytes += weight(p) })
	}
	return p, err
}

func (m *meter) Follow(ctx context.Context, prefixes []string, fn func(*kv.Page) error) error {
	follow := m.Store.Follow
	if m.follow != nil {
		follow = m.follow
	}
	return follow(ctx, prefixes, func(p *kv.Page) error {
		m.count(func(c *costs) { c.follows++; c.bytes += weight(p) })
		return fn(p)
	})
}

type process struct {
	*meter
	t     *testing.T
	ctx   context.Context
	store *memory.Store
	link  *kvfault.Link
	b     *kv.Backend
}

var keys, _ = kvkeys.New("test")

func on(t *testing.T, s *memory.Store, o changelog.Options, with ...func(*meter)) *process {
	t.Helper()
	f := &process{meter: new(meter), t: t, ctx: t.Context(), store: s, link: new(kvfault.Link)}
	f.Store = watchless.New(f.link.Wrap(s.Client()))
	for _, w := range with {
		w(f.meter)
	}
	b, err := kv.Open(f.ctx, changelog.New(f.meter, string(keys), o), kv.Options{
		Backend: "test", Namespace: "test", Create: true, Pipeline: 4,
		Limits: driver.Limits{BatchItems: 60, WriteOps: 100, WriteBytes: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.b = b
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *process) join(id driver.SessionID) driver.Session {
	f.t.Helper()
	s, err := f.b.Join(f.ctx, driver.Member{Session: id, Node: "n-" + string(id), TTL: 5 * time.Second})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *process) acquire(s driver.Session, shard driver.ShardID, seen driver.Owner) driver.Fence {
	f.t.Helper()
	return f.acquireAll(s, []driver.Claim{{Shard: shard, Seen: seen}})[0]
}

func (f *process) append(s driver.Session, fence driver.Fence, n driver.WriteNo) driver.CommitResult {
	f.t.Helper()
	return f.commit(f.ctx, s, fence, n, driver.Op{Kind: driver.OpAppend, Value: fmt.Append(nil, n)})
}

func (f *process) commit(ctx context.Context, s driver.Session, fence driver.Fence, n driver.WriteNo,
	ops ...driver.Op) driver.CommitResult {
	f.t.Helper()
	r, err := s.Commit(ctx, []driver.Write{{Fence: fence, Number: n, Nonce: driver.Nonce(n), Ops: ops}})
	if err != nil {
		return driver.CommitResult{Err: err}
	}
	return r[0]
}

// brief returns a context for a call that a fault delays.
func (f *process) brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(f.ctx, 10*time.Millisecond)
}

func (f *process) untilChunks(n int) {
	f.t.Helper()
	if !ample.Soon(f.ctx, func() bool { return len(f.store.Keys("test/!log/")) == n }) {
		f.t.Fatalf("after the trim there are chunks %q, want %d", f.store.Keys("test/!log/"), n)
	}
}

func want(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got %v, want %v", what, err, target)
	}
}

type viewer struct {
	*process
	cursor driver.Cursor
	shards map[driver.ShardID]driver.Owner
	resets int
}

func (f *process) view() *viewer {
	f.t.Helper()
	v := &viewer{process: f, shards: map[driver.ShardID]driver.Owner{}}
	v.next()
	return v
}

func (v *viewer) next() {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, ample.Time)
	defer cancel()
	page, err := v.b.Observe(ctx, driver.ObserveQuery{Since: v.cursor})
	if err != nil {
		v.t.Fatal(err)
	}
	if page.Reset {
		v.resets++
	}
	for _, s := range page.Shards {
		v.shards[s.Shard] = s.Owner
	}
	v.cursor = page.Cursor
}

// until takes pages until a shard's record has a fence's token.
func (v *viewer) until(f driver.Fence) {
	v.t.Helper()
	for v.shards[f.Shard].Token < f.Token {
		v.next()
	}
}

type tailer struct {
	*process
	cursor driver.Cursor
	at     map[driver.ShardID]driver.Seq
	resets int
}

func (f *process) tail() *tailer {
	f.t.Helper()
	t := &tailer{process: f, at: map[driver.ShardID]driver.Seq{}}
	t.next()
	return t
}

func (t *tailer) next() {
	t.t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, ample.Time)
	defer cancel()
	page, err := t.b.TailLog(ctx, t.cursor, 100)
	if err != nil {
		t.t.Fatal(err)
	}
	if page.Reset {
		t.resets++
		for _, h := range page.Heads {
			t.at[h.Shard] = max(t.at[h.Shard], h.Head.Seq)
		}
	}
	for _, e := range page.Entries {
		if e.Seq > t.at[e.Shard]+1 {
			t.t.Fatalf("the tail of %s goes from %d to %d", e.Shard, t.at[e.Shard], e.Seq)
		}
		t.at[e.Shard] = max(t.at[e.Shard], e.Seq)
	}
	t.cursor = page.Cursor
}

func (t *tailer) until(shard driver.ShardID, seq driver.Seq) {
	t.t.Helper()
	for t.at[shard] < seq {
		t.next()
	}
}

func (f *process) move(s driver.Session, fence driver.Fence) driver.Fence {
	f.t.Helper()
	r, err := s.Transfer(f.ctx, []driver.Transfer{{Fence: fence, To: s.ID()}})
	if err != nil || r[0].Err != nil {
		f.t.Fatalf("%v, %+v", err, r)
	}
	return r[0].Fence
}

func (f *process) claims(prefix string, n int) []driver.Claim {
	claims := make([]driver.Claim, n)
	for i := range claims {
		claims[i].Shard = driver.ShardID(fmt.Sprintf("%s%05d", prefix, i))
	}
	return claims
}

func (f *process) acquireAll(s driver.Session, claims []driver.Claim) []driver.Fence {
	f.t.Helper()
	got, err := s.Acquire(f.ctx, claims)
	if err != nil {
		f.t.Fatal(err)
	}
	fences := make([]driver.Fence, len(got))
	for i, r := range got {
		if r.Err != nil {
			f.t.Fatal(r.Err)
		}
		fences[i] = r.Fence
	}
	return fences
}

// TestCostOfAChange: whatever the size of the namespace, a change of ownership or a commit makes
// each process's Follow return once with few bytes. A long commit also costs one Get of one key. An
// eleventh process follows ten members that have all written before.
func TestCostOfAChange(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 10_000} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { costOfAChange(t, shards) })
		})
	}
}

func costOfAChange(t *testing.T, shards int) {
	const n, rounds = 10, 50
	store := memory.New()
	reader := on(t, store, changelog.Options{})
	v, tail := reader.view(), reader.tail()
	type member struct {
		*process
		s     driver.Session
		fence driver.Fence
		n     driver.WriteNo
	}
	var members []*member
	for i := range n {
		m := &member{process: on(t, store, changelog.Options{})}
		m.s = m.join(driver.SessionID(fmt.Sprint("m", i)))
		m.fence = m.acquireAll(m.s, m.claims(fmt.Sprintf("m%d-", i), max(1, shards/n)))[0]
		m.view()
		members = append(members, m)
		v.until(m.fence)
	}
	measure := func(what string, gets int, change func(m *member)) {
		reader.take()
		for i := range rounds {
			change(members[i%n])
			synctest.Wait()
		}
		got := reader.take()
		t.Logf("%s, %d shards of %d members: %d returns of Follow, %d Gets of %d keys, %d Ranges for %d changes; "+
			"%d bytes each",
			what, shards, n, got.follows, got.gets, got.keys, got.ranges, rounds, got.bytes/rounds)
		if got.follows > rounds || got.gets > gets*rounds || got.keys > gets*rounds || got.ranges > 0 ||
			got.writes > 0 {
			t.Errorf("%s, %d times, costs %+v; want one return of Follow and %d Gets each", what, rounds, got, gets)
		}
	}
	transfer := func(m *member) {
		m.fence = m.move(m.s, m.fence)
		v.until(m.fence)
	}
	commit := func(m *member) {
		m.n++
		if r := m.append(m.s, m.fence, m.n); r.Err != nil {
			t.Fatal(r.Err)
		}
		tail.until(m.fence.Shard, driver.Seq(m.n))
	}
	synctest.Wait()
	measure("a transfer right after all was claimed", 0, transfer)
	time.Sleep(15 * time.Second)
	measure("a transfer 15 s later", 0, transfer)
	measure("a transfer after that", 0, transfer)
	for _, m := range members {
		m.take()
	}
	measure("a commit", 0, commit)
	for i, m := range members { // they tail nothing, and look for idle change logs once
		if got := m.take(); got.follows+got.gets > 0 || got.ranges > 1 {
			t.Errorf("%d commits cost member %d %+v", rounds, i, got)
		}
	}
	measure("a commit of many bytes", 1, func(m *member) {
		m.n++
		long := driver.Op{Kind: driver.OpAppend, Value: make([]byte, 2000)}
		r, err := m.s.Commit(t.Context(), []driver.Write{{Fence: m.fence, Number: m.n, Nonce: 1,
			Ops: []driver.Op{long}}})
		if err != nil || r[0].Err != nil {
			t.Fatal(err, r)
		}
		tail.until(m.fence.Shard, driver.Seq(m.n))
	})
	if tail.resets > 1 {
		t.Errorf("the tail was reset %d times", tail.resets)
	}
}

// TestHandOver: a successor's first commit needs no read. The head from the former owner is only a
// hint, and an outdated head has the same effect as no head.
func TestHandOver(t *testing.T) {
	t.Parallel()
	for _, older := range []bool{false, true} {
		t.Run(fmt.Sprint("older head ", older), func(t *testing.T) {
			t.Parallel()
			store := memory.New()
			from, to := on(t, store, changelog.Options{}, func(m *meter) {
				m.onApply = func(b *changelog.Batch) {
					if older && b.Head.Key != "" {
						words := strings.Split(string(b.Piggyback.Ops[0].Value), " ")
						for i, w := range words {
							if shard, _, ok := strings.Cut(w, ","); ok {
								words[i] = shard + ",0," // there was no head
							}
						}
						b.Piggyback.Ops[0].Value = []byte(strings.Join(words, " "))
					}
				}
			}), on(t, store, changelog.Options{})
			a, b := from.join("a"), to.join("b")
			fence := from.acquire(a, "s", driver.Owner{})
			if r := from.append(a, fence, 1); r.Err != nil {
				t.Fatal(r.Err)
			}
			v := to.view()
			r, err := a.Transfer(t.Context(), []driver.Transfer{{Fence: fence, To: b.ID()}})
			if err != nil || r[0].Err != nil {
				t.Fatal(err, r)
			}
			v.until(r[0].Fence)
			if stored, _ := store.Record(keys.Shard("s")); strings.Contains(string(stored), "=") {
				t.Errorf("the shard's record is stored as %q; want it without the head", stored)
			}
			if got := v.shards["s"]; got != (driver.Owner{Session: b.ID(), Token: r[0].Fence.Token}) {
				t.Fatalf("the successor sees %+v, the former owner handed over %+v", got, r[0].Fence)
			}
			to.take()
			var conflict *driver.ConflictError
			if older {
				if r := to.append(b, r[0].Fence, 1); !errors.As(r.Err, &conflict) || conflict.Head.Number != 1 {
					t.Errorf("a commit under a number that is taken: %v", r.Err)
				}
			}
			if r := to.append(b, r[0].Fence, 2); r.Err != nil || r.Head.Number != 2 || r.Head.Seq != 2 {
				t.Errorf("the first commit of the successor: %+v", r)
			}
			if got := to.take(); !older && (got.gets > 0 || got.ranges > 0 || got.writes != 1) {
				t.Errorf("the first commit of the successor costs %+v; want one write", got)
			}
		})
	}
}

// TestIdle: an idle namespace costs nothing for an hour, regardless of its size and its members'
// past.
func TestIdle(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 10_000} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				var all []*process
				var blocked sync.WaitGroup
				ctx, cancel := context.WithCancel(t.Context())
				for i := range 3 {
					f := on(t, store, changelog.Options{})
					s := f.join(driver.SessionID(fmt.Sprint("m", i)))
					f.acquireAll(s, f.claims(fmt.Sprintf("m%d-", i), max(1, shards/3)))
					v, tail := f.view(), f.tail()
					blocked.Go(func() {
						for {
							page, err := f.b.Observe(ctx, driver.ObserveQuery{Since: v.cursor})
							if err != nil {
								return
							}
							v.cursor = page.Cursor
						}
					})
					blocked.Go(func() {
						for {
							page, err := f.b.TailLog(ctx, tail.cursor, 1)
							if err != nil {
								return
							}
							tail.cursor = page.Cursor
						}
					})
					all = append(all, f)
				}
				time.Sleep(5 * time.Second) // for work left by the claims
				for _, f := range all {
					f.take()
				}
				time.Sleep(time.Hour)
				for i, f := range all {
					if got := f.take(); got != (costs{}) {
						t.Errorf("process %d asked for %+v in an idle hour", i, got)
					}
				}
				cancel()
				blocked.Wait()
			})
		})
	}
}

// TestRepeatedPages: pages without news cost nothing and hide nothing, even if their revisions go
// back, as Consul's index does.
func TestRepeatedPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		w := on(t, store, changelog.Options{})
		f := on(t, store, changelog.Options{}, func(m *meter) {
			m.follow = func(ctx context.Context, prefixes []string, fn func(*kv.Page) error) error {
				for n := kv.Rev(0); ; n++ {
					page := &kv.Page{}
					for _, p := range prefixes {
						found, err := m.Store.Range(ctx, kv.Range{Prefix: p})
						if err != nil {
							return err
						}
						page.Pairs = append(page.Pairs, found.Pairs...)
						page.Rev = max(0, found.Rev-n%5)
					}
					if err := fn(page); err != nil {
						return err
					}
					select {
					case <-time.After(500 * time.Millisecond):
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}
		})
		s := w.join("a")
		fence := w.acquire(s, "s", driver.Owner{})
		v := f.view()
		for n := range 20 {
			fence = w.move(s, fence)
			v.until(fence)
			synctest.Wait()
			f.take()
			time.Sleep(10 * time.Second)
			if got := f.take(); got.gets+got.ranges > 0 {
				t.Fatalf("change %d: ten seconds of pages without news cost %+v", n, got)
			}
		}
		if v.resets != 1 {
			t.Errorf("the view was read in full %d times", v.resets)
		}
	})
}

// TestManyChanges: if thousands of records change together, each process reads all records a few
// times, instead of reading them one by one.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	store := memory.New()
	w, f := on(t, store, changelog.Options{}), on(t, store, changelog.Options{})
	v := f.view()
	s := w.join("a")
	f.take()
	fences := w.acquireAll(s, w.claims("s", 5000))
	for _, fence := range fences {
		v.until(fence)
	}
	got := f.take()
	t.Logf("5000 claims in batches of 60: %+v", got)
	if got.gets+got.ranges > 500 || got.ranges > 100 {
		t.Errorf("5000 claims cost a follower %+v", got)
	}
}

// TestLostReplies: after a write without an answer, applied or not, its change log continues, and
// no reader misses a change.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]kvfault.Fault{
		"request lost": kvfault.DropRequest, "reply lost": kvfault.DropReply, "twice": kvfault.Duplicate,
		"late": kvfault.HoldRequest, "again": kvfault.Replay, "failed": kvfault.Fail,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memory.New()
			w, f := on(t, store, changelog.Options{Parallel: 1}), on(t, store, changelog.Options{})
			s := w.join("a")
			v, tail := f.view(), f.tail()
			owner := driver.Owner{}
			for n := range driver.WriteNo(10) {
				shard := driver.ShardID(fmt.Sprint("s", n))
				w.link.Set(kvfault.Write, fault)
				ctx, cancel := w.brief()
				_, _ = s.Acquire(ctx, []driver.Claim{{Shard: shard}})
				cancel()
				w.link.Heal()
				if n%2 == 0 {
					w.link.Deliver()
				}
				fence := w.acquire(s, shard, owner)
				v.until(fence)
				w.link.Deliver()
				if again := w.acquire(s, shard, owner); again != fence {
					t.Errorf("the lease of %s is %+v, and was %+v", shard, again, fence)
				}
				w.link.Set(kvfault.Write, fault)
				ctx, cancel = w.brief()
				w.commit(ctx, s, fence, 1, driver.Op{Kind: driver.OpAppend, Value: []byte("x")})
				cancel()
				w.link.Heal()
				if n%2 == 0 {
					w.link.Deliver()
				}
				if r := w.append(s, fence, 1); r.Err != nil && !errors.Is(r.Err, driver.ErrConflict) {
					t.Errorf("a commit %s, sent again: %v", name, r.Err)
				}
				tail.until(shard, 1)
				w.link.Deliver()
			}
		})
	}
}

// TestLateRequest: a late request arrives after the process has read its change log again, but
// before the process's next request. The store then refuses the next request, which the process
// sends again.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	store := memory.New()
	var w *process
	w = on(t, store, changelog.Options{Parallel: 1}, func(m *meter) {
		m.onGet = func(names []string) {
			if strings.HasPrefix(names[0], keys.ChangeLogs()) {
				w.link.Deliver()
			}
		}
	})
	f := on(t, store, changelog.Options{})
	s := w.join("a")
	v := f.view()
	w.link.Set(kvfault.Write, kvfault.HoldRequest)
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan error, 1)
	go func() {
		r, err := s.Acquire(ctx, []driver.Claim{{Shard: "late"}})
		if err == nil {
			err = r[0].Err
		}
		held <- err
	}()
	if err := w.link.AwaitHeld(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-held; !driver.Unknown(err) {
		t.Errorf("a claim that was held: %v; want an unknown outcome", err)
	}
	w.link.Heal()
	w.take()
	fence := w.acquire(s, "next", driver.Owner{})
	if got := w.take(); got.writes != 2 {
		t.Errorf("%d writes; want one that was refused, and one more", got.writes)
	}
	v.until(fence)
	if v.shards["late"].Session != "a" {
		t.Errorf("the late claim is not in the view: %v", v.shards)
	}
}

// TestChangeLogRemoved: removing or damaging a change log costs its readers only a full read.
func TestChangeLogRemoved(t *testing.T) {
	t.Parallel()
	store := memory.New()
	w, f := on(t, store, changelog.Options{}), on(t, store, changelog.Options{})
	s := w.join("a")
	fence := w.acquire(s, "s", driver.Owner{})
	v := f.view()
	for n, value := range [][]byte{nil, []byte("x"), {}, nil} {
		logs := store.Keys(keys.ChangeLogs())
		if len(logs) == 0 {
			t.Fatal("there are no change logs")
		}
		for _, log := range logs {
			store.Tamper(log, value)
		}
		for range 3 {
			fence = w.move(s, fence)
			v.until(fence)
		}
		for _, log := range store.Keys(keys.ChangeLogs()) {
			if got, ok := store.Record(log); ok && string(got) == string(value) {
				store.Tamper(log, nil)
			}
		}
		fence = w.move(s, fence)
		v.until(fence)
		if n == 0 && v.shards["s"].Session != "a" {
			t.Error("the owner is gone from the view")
		}
	}
}

// TestChangeLogsLost: a process reads the state before it follows the change logs. Change logs that
// disappear after the read and before the first page hide nothing from the process.
func TestChangeLogsLost(t *testing.T) {
	t.Parallel()
	store := memory.New()
	w, f := on(t, store, changelog.Options{}), on(t, store, changelog.Options{})
	s := w.join("a")
	fence := w.acquire(s, "s", driver.Owner{})
	v := f.view()
	fence = w.move(s, fence)
	for _, log := range store.Keys(keys.ChangeLogs()) {
		store.Tamper(log, nil)
	}
	v.until(fence)
}

// TestCleanUp: processes that write remove the change logs of processes that are gone, and no
// process needs a full read because of this.
func TestCleanUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		f, w := on(t, store, changelog.Options{}), on(t, store, changelog.Options{})
		s := w.join("w")
		fence := w.acquire(s, "s", driver.Owner{})
		v, own, tail := f.view(), w.view(), f.tail()
		type idle struct {
			*process
			driver.Session
		}
		var gone []idle
		for i := range 5 {
			g := on(t, store, changelog.Options{})
			gs := g.join(driver.SessionID(fmt.Sprint("gone", i)))
			shard := driver.ShardID(fmt.Sprint("g", i))
			g.append(gs, g.acquire(gs, shard, driver.Owner{}), 1)
			tail.until(shard, 1)
			gone = append(gone, idle{g, gs})
		}
		fence = w.move(s, fence)
		v.until(fence)
		own.until(fence)
		before := len(store.Keys(keys.ChangeLogs()))
		if before < 11 {
			t.Fatalf("%d change logs of %d processes that wrote", before, len(gone)+1)
		}
		for range 10 { // nobody is gone for a minute yet
			fence = w.move(s, fence)
			own.until(fence)
		}
		if n := len(store.Keys(keys.ChangeLogs())); n != before {
			t.Errorf("%d of %d change logs are left before their time", n, before)
		}
		time.Sleep(2 * time.Minute)
		f.take()
		w.take()
		for n := range driver.WriteNo(10) {
			fence = w.move(s, fence)
			v.until(fence)
			own.until(fence)
			if r := w.append(s, fence, n+1); r.Err != nil {
				t.Fatal(r.Err)
			}
			tail.until("s", driver.Seq(n+1))
			time.Sleep(20 * time.Second) // w does not follow the logs, and looks for idle ones now and then
		}
		if n := len(store.Keys(keys.ChangeLogs())); n != 2 {
			t.Errorf("%d change logs are left of %d: %q", n, before, store.Keys(keys.ChangeLogs()))
		}
		if got := f.take(); got.ranges > 0 || v.resets > 1 || tail.resets > 1 {
			t.Errorf("removing change logs made a follower read in full: %+v", got)
		}
		// A live process continues after its change logs were removed.
		for i, g := range gone {
			shard := driver.ShardID(fmt.Sprint("g", i))
			fence := driver.Fence{Shard: shard, Session: g.ID(), Token: v.shards[shard].Token}
			if r := g.append(g.Session, fence, 2); r.Err != nil {
				t.Error(r.Err)
			}
			tail.until(shard, 2)
			if err := g.Release(t.Context(), []driver.Fence{fence}); err != nil {
				t.Error(err)
			}
		}
		for i := range gone {
			for v.shards[driver.ShardID(fmt.Sprint("g", i))].Session != "" {
				v.next()
			}
		}
	})
}

// TestOwnChangeLogsStay: a process that was idle for longer than the retention time continues with
// its own change logs, whether or not it follows change logs. Nothing is removed, and nothing is
// refused.
func TestOwnChangeLogsStay(t *testing.T) {
	t.Parallel()
	for _, follows := range []bool{false, true} {
		t.Run(fmt.Sprint("follows=", follows), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				f, w := on(t, store, changelog.Options{}), on(t, store, changelog.Options{})
				s := w.join("w")
				fence := w.acquire(s, "s", driver.Owner{})
				write := func(n driver.WriteNo) {
					fence = w.move(s, fence)
					if r := w.append(s, fence, n); r.Err != nil {
						t.Fatal(r.Err)
					}
				}
				write(1)
				v, tail := f.view(), f.tail()
				if follows {
					w.view().until(fence)
					w.tail().until("s", 0)
				}
				logs := store.Keys(keys.ChangeLogs())
				w.onApply = func(b *changelog.Batch) {
					if b.Piggyback == nil {
						return
					}
					for _, op := range b.Piggyback.Ops {
						if op.Delete {
							t.Errorf("the process removes %s", op.Key)
						}
					}
				}
				for n := range driver.WriteNo(3) {
					time.Sleep(2 * time.Minute) // and what looks for idle change logs now and then has looked
					w.take()
					write(n + 2)
					synctest.Wait()
					if got := w.take().writes; got != 2 {
						t.Errorf("%d writes for a hand-over and a commit", got)
					}
					v.until(fence)
					tail.until("s", driver.Seq(n+2))
				}
				if now := store.Keys(keys.ChangeLogs()); !slices.Equal(now, logs) {
					t.Errorf("the change logs are %q, and were %q", now, logs)
				}
				if v.resets > 1 || tail.resets > 1 {
					t.Errorf("%d resets of a view and %d of a tail, want one of each", v.resets, tail.resets)
				}
			})
		})
	}
}

// TestSweep: processes that tail nothing remove a change log of kind logs only when it has been
// idle for a while. They never remove other change logs.
func TestSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		logs := func() []string { return store.Keys(keys.ChangeLogs() + "log-") }
		const appends, step, retention = 60, 2 * time.Second, 55 * time.Second
		writes := 0
		start := func(name string) func(n driver.WriteNo) {
			p := on(t, store, changelog.Options{Retention: retention})
			s := p.join(driver.SessionID(name))
			fence := p.acquire(s, driver.ShardID(name), driver.Owner{})
			return func(n driver.WriteNo) {
				p.take()
				if r := p.append(s, fence, n); r.Err != nil {
					t.Fatal(r.Err)
				}
				synctest.Wait()
				writes += p.take().writes
			}
		}
		start("gone")(1)
		gone := logs()[0]
		a, b := start("a"), start("b")
		for n := range driver.WriteNo(appends) {
			a(n + 1)
			b(n + 1)
			here := logs()
			later := time.Duration(n) * step
			if is := slices.Contains(here, gone); is && later > retention+30*time.Second || !is && later < retention {
				t.Errorf("%v later: the idle change log is there: %v", later, is)
			}
			if live := slices.DeleteFunc(here, func(log string) bool { return log == gone }); len(live) != 2 {
				t.Errorf("%v later the change logs are %q", later, live)
			}
			time.Sleep(step)
		}
		// Both processes may have tried to remove the change log.
		if most := 1 + 2*appends + 1; writes > most {
			t.Errorf("%d writes to append %d entries", writes, 1+2*appends)
		}
	})
}

// TestSlowTail: a tail that missed commits of one shard reads that shard's log. The tail is reset
// only if it missed hundreds of commits, or megabytes, or trimmed entries.
func TestSlowTail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		commits driver.WriteNo
		size    int
		trim    bool
		reset   bool
	}{
		"a few": {5, 1, false, false}, "some": {100, 1, false, false}, "hundreds": {400, 1, false, true},
		"megabytes": {100, 128 << 10, false, true}, "trimmed": {3, 1, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memory.New()
			w, f := on(t, store, changelog.Options{}), on(t, store, changelog.Options{})
			s := w.join("a")
			fence := w.acquire(s, "s", driver.Owner{})
			w.append(s, fence, 1)
			tail := f.tail()
			w.append(s, fence, 2)
			tail.until("s", 2)
			f.link.Set(kvfault.Watch, kvfault.DropRequest)
			for n := range c.commits {
				ops := []driver.Op{{Kind: driver.OpAppend, Value: make([]byte, c.size)}}
				if c.trim {
					ops = append(ops, driver.Op{Kind: driver.OpTrim, Through: driver.Seq(n) + 2})
				}
				if r := w.commit(t.Context(), s, fence, n+3, ops...); r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			if c.trim { // also of the last entry, so no chunk is left
				trim := driver.Op{Kind: driver.OpTrim, Through: driver.Seq(c.commits) + 2}
				if r := w.commit(t.Context(), s, fence, c.commits+3, trim); r.Err != nil {
					t.Fatal(r.Err)
				}
				w.untilChunks(0)
			}
			f.take()
			f.link.Heal()
			tail.until("s", driver.Seq(c.commits)+2)
			if reset := tail.resets > 1; reset != c.reset {
				t.Errorf("after %d commits a tail was reset: %v; want %v", c.commits, reset, c.reset)
			}
			cost := f.take()
			if most := 9 << 20; cost.bytes > most {
				t.Errorf("to catch up, %d bytes were read, want at most %d", cost.bytes, most)
			}
			t.Logf("to catch up with %d commits cost %+v", c.commits, cost)
		})
	}
}

// TestRefusedCommit: an entry of a refused commit next to an entry of an applied commit resets no
// reader.
func TestRefusedCommit(t *testing.T) {
	t.Parallel()
	store := memory.New()
	w, f := on(t, store, changelog.Options{}), on(t, store, changelog.Options{})
	s := w.join("a")
	good, bad := w.acquire(s, "good", driver.Owner{}), w.acquire(s, "bad", driver.Owner{})
	w.append(s, good, 1)
	w.append(s, bad, 1)
	tail := f.tail()
	thief := f.join("b")
	claim := driver.Claim{Shard: "bad", Seen: driver.Owner{Session: "a", Token: bad.Token}, Preempt: true}
	if r, err := thief.Acquire(t.Context(), []driver.Claim{claim}); err != nil || r[0].Err != nil {
		t.Fatal(err, r)
	}
	write := func(f driver.Fence) driver.Write {
		return driver.Write{Fence: f, Number: 2, Nonce: 2,
			Ops: []driver.Op{{Kind: driver.OpAppend, Value: []byte("x")}}}
	}
	r, err := s.Commit(t.Context(), []driver.Write{write(good), write(bad)})
	if err != nil || r[0].Err != nil {
		t.Fatal(err, r)
	}
	want(t, "a commit after the shard was taken", r[1].Err, driver.ErrFenced)
	tail.until("good", 2)
	if tail.resets != 1 || tail.at["bad"] != 1 {
		t.Errorf("the tail was reset %d times, and is at %v", tail.resets, tail.at)
	}
}

// TestChangeLogsInUse: while all change logs wait for the store, heartbeats pass. Other writes wait
// until their contexts end.
func TestChangeLogsInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := on(t, memory.New(), changelog.Options{Parallel: 2})
		s := w.join("a")
		w.link.Set(kvfault.Write, kvfault.HoldRequest)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var held sync.WaitGroup
		for i := range 2 {
			held.Go(func() { _, _ = s.Acquire(ctx, []driver.Claim{{Shard: driver.ShardID(fmt.Sprint("s", i))}}) })
		}
		synctest.Wait()
		if err := s.Beat(t.Context()); err != nil {
			t.Errorf("a heartbeat: %v", err)
		}
		brief, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		_, err := s.Acquire(brief, []driver.Claim{{Shard: "t"}})
		want(t, "a claim for which no change log is free", err, driver.ErrRetry)
		w.link.Heal()
		w.link.Deliver()
		held.Wait()
		w.acquire(s, "t", driver.Owner{})
	})
}

// TestWatch checks Watch against the part of kv.Store's contract that Backend does not use.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := changelog.New(watchless.New(memory.New().Client()), string(keys), changelog.Options{})
		none := func(kv.Rev, []kv.Change) error { return nil }
		for _, prefixes := range [][]string{{keys.State(), keys.Logs()}, {keys.State(), keys.Beats()}} {
			want(t, fmt.Sprintf("a watch of %q", prefixes), s.Watch(t.Context(), prefixes, 0, none),
				errors.ErrUnsupported)
		}
		put := func(key, value string) kv.Rev {
			out, err := s.Apply(t.Context(), &kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{{Key: key, Value: []byte(value)}}}}})
			if err != nil {
				t.Fatal(err)
			}
			return out.Results[0].Rev
		}
		stop := errors.New("stop")
		first := put(keys.Shard("one"), "1 free 1")
		var got []kv.Change
		take := func(_ kv.Rev, c []kv.Change) error {
			got = append(got, c...)
			return stop
		}
		want(t, "a watch from before it first looked", s.Watch(t.Context(), []string{keys.State()}, first-1, take),
			stop)
		if len(got) != 1 || got[0].Rev != first {
			t.Errorf("a watch from before it first looked has %+v; want the change at %d", got, first)
		}
		got = nil
		ended := make(chan error, 1)
		go func() {
			ended <- s.Watch(t.Context(), []string{keys.Shard("t")}, first, take)
		}()
		synctest.Wait()
		put(keys.Shard("one"), "1 free 2")
		synctest.Wait()
		rev := put(keys.Shard("two"), "1 free 3")
		want(t, "a watch whose function failed", <-ended, stop)
		if len(got) != 1 || got[0].Key != keys.Shard("two") || got[0].Rev != rev {
			t.Errorf("a watch of two has %+v", got)
		}
		// Changes that are newer than the start of the watch are delivered again.
		got = nil
		want(t, "a watch of known changes", s.Watch(t.Context(), []string{keys.State()}, first, take), stop)
		if len(got) != 2 {
			t.Errorf("a watch from the beginning has %+v", got)
		}
		go func() { ended <- s.Watch(t.Context(), []string{keys.State()}, rev, none) }()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || driver.NotApplied(err) {
			t.Errorf("closing ended a watch with %v", err)
		}
		if err := s.Watch(t.Context(), []string{keys.State()}, rev, none); err == nil {
			t.Error("a watch of a closed store begins")
		}
	})
}
