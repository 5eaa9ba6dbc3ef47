package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/internal/proof/share"
)

// fixture is one process on a store: a backend behind its own link.
type fixture struct {
	t     *testing.T
	ctx   context.Context
	store *memory.Store
	link  *kvfault.Link
	b     *kv.Backend
}

func setup(t *testing.T) *fixture {
	t.Helper()
	return on(t, memory.New(), 1024)
}

// on opens a backend that sends at most the given number of transactions in one call.
func on(t *testing.T, s *memory.Store, items int) *fixture {
	t.Helper()
	f := &fixture{t: t, ctx: t.Context(), store: s, link: new(kvfault.Link)}
	b, err := kv.Open(f.ctx, f.link.Wrap(s.Client()), kv.Options{
		Backend: "test", Namespace: "test", Create: true, Pipeline: 4,
		Limits: driver.Limits{BatchItems: items, WriteOps: 100, WriteBytes: 1 << 20},
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

func (f *fixture) join(id driver.SessionID) driver.Session {
	f.t.Helper()
	s, err := f.b.Join(f.ctx, driver.Member{Session: id, Node: "n-" + string(id), TTL: 5 * time.Second})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fixture) acquire(s driver.Session, shard driver.ShardID, seen driver.Owner) driver.Fence {
	f.t.Helper()
	r, err := s.Acquire(f.ctx, []driver.Claim{{Shard: shard, Seen: seen}})
	if err != nil || r[0].Err != nil {
		f.t.Fatalf("acquire %s: %v, %+v", shard, err, r)
	}
	return r[0].Fence
}

func (f *fixture) append(s driver.Session, fence driver.Fence, n driver.WriteNo) driver.CommitResult {
	f.t.Helper()
	return f.commit(f.ctx, s, fence, n, driver.Op{Kind: driver.OpAppend, Value: fmt.Append(nil, n)})
}

func (f *fixture) commit(ctx context.Context, s driver.Session, fence driver.Fence, n driver.WriteNo, ops ...driver.Op) driver.CommitResult {
	f.t.Helper()
	r, err := s.Commit(ctx, []driver.Write{{Fence: fence, Number: n, Nonce: driver.Nonce(n), Ops: ops}})
	if err != nil {
		return driver.CommitResult{Err: err}
	}
	return r[0]
}

// brief returns a context for a call that waits because of a fault.
func (f *fixture) brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(f.ctx, 10*time.Millisecond)
}

func want(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got %v, want %v", what, err, target)
	}
}

func TestStoreChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fixture, *memory.Snapshot){
		"wiped":          func(f *fixture, _ *memory.Snapshot) { f.store.Wipe() },
		"restored":       func(f *fixture, old *memory.Snapshot) { f.store.Restore(old) },
		"floor raised":   func(f *fixture, _ *memory.Snapshot) { f.raise(1000) },
		"other identity": func(f *fixture, _ *memory.Snapshot) { f.store.Tamper("test/!id", []byte(`{"v":1,"id":"x"}`)) },
		"restored and busy": func(f *fixture, old *memory.Snapshot) {
			f.store.Restore(old)
			for range 100 { // the revision is beyond what was acknowledged before
				f.store.Tamper("other", []byte("x"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			s := f.join("a")
			old := f.store.Snapshot()
			for range 5 {
				if err := s.Beat(f.ctx); err != nil {
					t.Fatal(err)
				}
			}
			change(f, old)
			want(t, "heartbeat", s.Beat(f.ctx), driver.ErrStoreChanged)
			writes := f.link.Count(kvfault.Write)
			_, err := s.Acquire(f.ctx, []driver.Claim{{Shard: "s"}})
			want(t, "acquire", err, driver.ErrStoreChanged)
			_, err = f.b.Observe(f.ctx, driver.ObserveQuery{})
			want(t, "observe", err, driver.ErrStoreChanged)
			if n := f.link.Count(kvfault.Write); n != writes {
				t.Errorf("%d writes were sent to a store that changed", n-writes)
			}
		})
	}
}

// TestStoreChangesBeforeTheWait: a call that begins to wait while another call detects that the
// store changed does not wait forever.
func TestStoreChangesBeforeTheWait(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*fixture, driver.Cursor) error{
		"observe": func(f *fixture, since driver.Cursor) error {
			_, err := f.b.Observe(f.ctx, driver.ObserveQuery{Since: since, Beats: []driver.Beat{{Session: "none"}}})
			return err
		},
		"tail": func(f *fixture, since driver.Cursor) error {
			_, err := f.b.TailLog(f.ctx, since, 10)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			ctx, cancel := context.WithTimeout(f.ctx, ample.Time)
			defer cancel()
			f.ctx = ctx
			v, err := f.b.Observe(f.ctx, driver.ObserveQuery{})
			if err != nil {
				t.Fatal(err)
			}
			f.link.Set(kvfault.Read, kvfault.HoldRequest) // it reads before it waits
			ended := make(chan error, 1)
			go func() { ended <- call(f, v.Cursor) }()
			if err := f.link.AwaitHeld(f.ctx, 1); err != nil {
				t.Fatal(err)
			}
			f.link.Heal()
			f.store.Tamper("test/!id", []byte(`{"v":1,"id":"x"}`))
			_, err = f.b.Observe(f.ctx, driver.ObserveQuery{})
			want(t, "the call that finds out", err, driver.ErrStoreChanged)
			f.link.Deliver()
			want(t, "the call that waits", <-ended, driver.ErrStoreChanged)
			if ctx.Err() != nil {
				t.Error("the call that waits ended only by its deadline")
			}
		})
	}
}

// TestObserversOfDifferentBeats: of two concurrent calls that request different heartbeats, neither
// ends the other's watch.
func TestObserversOfDifferentBeats(t *testing.T) {
	t.Parallel()
	f := setup(t)
	rounds := share.Of(t, "rounds", 3000, 300)
	for round := range ample.During(10*time.Second, 0) {
		if round == rounds {
			break
		}
		f.observeTwice(round)
	}
}

func (f *fixture) observeTwice(round int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, ample.Time)
	defer cancel()
	var sessions [2]driver.Session
	for i := range sessions {
		sessions[i] = f.join(driver.SessionID(fmt.Sprintf("%d-%d", round, i)))
	}
	v, err := f.b.Observe(ctx, driver.ObserveQuery{Beats: []driver.Beat{{Session: sessions[0].ID()}, {Session: sessions[1].ID()}}})
	if err != nil || len(v.Beats) != 2 {
		f.t.Fatalf("%+v, %v", v, err)
	}
	ended := make(chan error, len(sessions))
	for i := range sessions {
		go func() {
			next, err := f.b.Observe(ctx, driver.ObserveQuery{Since: v.Cursor, Beats: v.Beats[i : i+1]})
			if err == nil && len(next.Beats) != 1 {
				err = fmt.Errorf("got %+v", next)
			}
			ended <- err
		}()
	}
	for _, s := range sessions {
		if err := s.Beat(f.ctx); err != nil {
			f.t.Fatal(err)
		}
	}
	for range sessions {
		if err := <-ended; err != nil {
			f.t.Fatalf("round %d: %v", round, err)
		}
	}
	for _, s := range sessions {
		if err := s.Close(f.ctx); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fixture) raise(above driver.Token) {
	f.t.Helper()
	c := f.store.Client()
	if err := kv.RaiseFloor(f.ctx, c, "test", above); err != nil {
		f.t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		f.t.Fatal(err)
	}
}

func TestRaiseFloor(t *testing.T) {
	t.Parallel()
	f := setup(t)
	before := f.acquire(f.join("a"), "s", driver.Owner{})
	f.raise(1_000_000)
	f.raise(10) // lower: changes nothing
	g := on(t, f.store, 10)
	s := g.join("b")
	r, err := s.Acquire(g.ctx, []driver.Claim{{Shard: "s"}, {Shard: "new"}})
	if err != nil {
		t.Fatal(err)
	}
	var held *driver.HeldError
	if !errors.As(r[0].Err, &held) || held.Owner.Session != "a" || held.Owner.Token <= before.Token {
		t.Errorf("the old lease is %+v; want it held by a with a token above the floor", r[0])
	}
	if r[1].Err != nil || r[1].Fence.Token <= 1_000_000 {
		t.Errorf("a new lease is %+v; want a token above the floor", r[1])
	}
	want(t, "commit with a token from below the floor", f.commit(g.ctx, s, before, 1, driver.Op{Kind: driver.OpAppend}).Err, driver.ErrFenced)
	want(t, "negative floor", kv.RaiseFloor(f.ctx, f.store.Client(), "test", -1), driver.ErrInvalid)
	want(t, "no namespace", kv.RaiseFloor(f.ctx, f.store.Client(), "none", 1), driver.ErrStoreChanged)
}

// TestFirstOpen: an empty store is usually new, so the error first explains how to create a
// namespace.
func TestFirstOpen(t *testing.T) {
	t.Parallel()
	_, err := memory.Open(t.Context(), memory.New(), "test", &memory.Options{NoCreate: true})
	want(t, "an empty store", err, driver.ErrStoreChanged)
	if begin, wiped := strings.Index(err.Error(), "Create"), strings.Index(err.Error(), "wiped"); begin < 0 || wiped < begin {
		t.Errorf("the error speaks of a wiped store before it says how to begin: %v", err)
	}
}

// TestOverlappingHeartbeats: requests and replies that arrive out of order are not mistaken for a
// changed store (rules I1 and C10).
func TestOverlappingHeartbeats(t *testing.T) {
	t.Parallel()
	f := setup(t)
	s := f.join("a")
	for range 20 {
		f.link.Set(kvfault.Heartbeat, kvfault.HoldRequest)
		ctx, cancel := context.WithCancel(f.ctx)
		late := make(chan error, 2)
		for range 2 {
			go func() { late <- s.Beat(ctx) }()
		}
		if err := f.link.AwaitHeld(f.ctx, 2); err != nil {
			t.Fatal(err)
		}
		f.link.Heal()
		if err := s.Beat(f.ctx); err != nil {
			t.Fatalf("a heartbeat that overtakes two others: %v", err)
		}
		f.link.Deliver()
		for range 2 {
			if err := <-late; err != nil && driver.NotApplied(err) {
				t.Fatalf("a late heartbeat: %v", err)
			}
		}
		cancel()
	}
	f.link.Set(kvfault.Heartbeat, kvfault.Duplicate)
	if err := s.Beat(f.ctx); err != nil {
		t.Error(err)
	}
}

func TestLostReplies(t *testing.T) {
	t.Parallel()
	f := setup(t)
	a, b := f.join("a"), f.join("b")
	lost := 0
	lose := func(call func(ctx context.Context) error) {
		t.Helper()
		f.link.Set(kvfault.Write, kvfault.DropReply)
		ctx, cancel := context.WithCancel(f.ctx)
		lost++
		var caller sync.WaitGroup
		caller.Go(func() { // gives up once the call has been made
			_ = f.link.AwaitLost(ctx, lost)
			cancel()
		})
		err := call(ctx)
		cancel()
		caller.Wait()
		if err == nil || driver.NotApplied(err) {
			t.Errorf("a call without a reply: %v; want an unknown outcome", err)
		}
		f.link.Heal()
	}
	claim := []driver.Claim{{Shard: "s"}}
	lose(func(ctx context.Context) error {
		r, err := a.Acquire(ctx, claim)
		if err == nil {
			err = r[0].Err
		}
		return err
	})
	first := f.acquire(a, "s", driver.Owner{})
	if again := f.acquire(a, "s", driver.Owner{}); again != first {
		t.Errorf("a claim repeated again gives %+v, want %+v", again, first)
	}
	to := []driver.Transfer{{Fence: first, To: "b"}}
	lose(func(ctx context.Context) error {
		r, err := a.Transfer(ctx, to)
		if err == nil {
			err = r[0].Err
		}
		return err
	})
	r, err := a.Transfer(f.ctx, to)
	if err != nil || r[0].Err != nil || r[0].Fence.Session != "b" || r[0].Fence.Token <= first.Token {
		t.Fatalf("a repeated transfer gives %+v, %v", r, err)
	}
	second := r[0].Fence
	lose(func(ctx context.Context) error {
		return f.commit(ctx, b, second, 1, driver.Op{Kind: driver.OpAppend}).Err
	})
	want(t, "the same write again", f.append(b, second, 1).Err, driver.ErrConflict)
	if r := f.append(b, second, 2); r.Err != nil || r.Head.Seq != 2 {
		t.Errorf("the next write: %+v", r)
	}
	want(t, "a write of the former lease", f.append(a, first, 3).Err, driver.ErrFenced)
}

func TestLateRequestsAreRefused(t *testing.T) {
	t.Parallel()
	f := setup(t)
	a := f.join("a")
	fence := f.acquire(a, "s", driver.Owner{})
	f.append(a, fence, 1)
	f.link.Set(kvfault.Write, kvfault.HoldRequest)
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	held := make(chan error, 1)
	go func() {
		held <- f.commit(ctx, a, fence, 2, driver.Op{Kind: driver.OpAppend, Value: []byte("late")}).Err
	}()
	if err := f.link.AwaitHeld(f.ctx, 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-held; !driver.Unknown(err) {
		t.Errorf("a commit that never arrived: %v; want an unknown outcome", err)
	}
	f.link.Heal()
	if r := f.append(a, fence, 2); r.Err != nil {
		t.Fatal(r.Err)
	}
	if n := f.link.Deliver(); n != 1 {
		t.Fatalf("%d requests were delivered late, want 1", n)
	}
	page, err := f.b.ReadLog(f.ctx, "s", 0, 10)
	if err != nil || len(page.Entries) != 2 || string(page.Entries[1].Payload) != "2" || page.Head.Number != 2 {
		t.Errorf("after a late commit of the same number: %+v, %v", page, err)
	}
}

func TestBatchesAreSplit(t *testing.T) {
	t.Parallel()
	f := on(t, memory.New(), 7)
	a := f.join("a")
	claims := make([]driver.Claim, 50)
	for i := range claims {
		claims[i].Shard = driver.ShardID(fmt.Sprintf("s%d", i))
	}
	f.acquire(f.join("b"), "s13", driver.Owner{})
	before := f.link.Count(kvfault.Write)
	r, err := a.Acquire(f.ctx, claims)
	if err != nil {
		t.Fatal(err)
	}
	if n := f.link.Count(kvfault.Write) - before; n != 8 {
		t.Errorf("50 claims in batches of 7 took %d round trips, want 8", n)
	}
	fences := make([]driver.Fence, 0, len(r))
	for i := range r {
		if held := i == 13; held != errors.Is(r[i].Err, driver.ErrHeld) || !held && r[i].Fence.Shard != claims[i].Shard {
			t.Errorf("claim %d of %s: %+v", i, claims[i].Shard, r[i])
		}
		if r[i].Err == nil {
			fences = append(fences, r[i].Fence)
		}
	}
	if err := a.Release(f.ctx, fences); err != nil {
		t.Fatal(err)
	}
	v, err := f.b.Observe(f.ctx, driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range v.Shards {
		if (s.Owner.Session == "") == (s.Shard == "s13") || s.Owner.Token == 0 {
			t.Errorf("after the release shard %s has %+v", s.Shard, s.Owner)
		}
	}
}

func TestPartlyFailedBatches(t *testing.T) {
	t.Parallel()
	f := on(t, memory.New(), 1)
	a := f.join("a")
	failed := errors.New("connection reset")
	f.link.SetError(kvfault.Write, failed)
	r, err := a.Acquire(f.ctx, []driver.Claim{{Shard: "s"}, {Shard: "t"}})
	if err != nil || !driver.Unknown(r[0].Err) || !driver.Unknown(r[1].Err) {
		t.Errorf("claims whose batches failed: %+v, %v; want unknown results", r, err)
	}
	want(t, "the store's error", r[0].Err, failed)
	f.link.SetError(kvfault.All, driver.ErrRetry)
	if _, err = a.Acquire(f.ctx, []driver.Claim{{Shard: "s"}, {Shard: "t"}}); !errors.Is(err, driver.ErrRetry) {
		t.Errorf("a call of which nothing was applied: %v; want ErrRetry", err)
	}
	f.link.Heal()
	f.acquire(a, "s", driver.Owner{})
	f.link.SetError(kvfault.Read, failed)
	_, err = a.Acquire(f.ctx, []driver.Claim{{Shard: "s", Seen: driver.Owner{Token: 1}}})
	want(t, "a read that failed before anything was sent", err, driver.ErrRetry)
}

func TestGuard(t *testing.T) {
	t.Parallel()
	f := setup(t)
	a := f.join("a")
	fence := f.acquire(a, "s", driver.Owner{})
	for _, b := range []*kv.Backend{f.b, on(t, f.store, 10).b} { // one knows the lease, and one reads it
		c, err := kv.Guard(f.ctx, b, fence)
		if err != nil {
			t.Fatal(err)
		}
		client := f.store.Client()
		out, err := client.Apply(f.ctx, &kv.Batch{Guard: c})
		if err != nil || out.Refused {
			t.Errorf("the guard of a current lease: %+v, %v", out, err)
		}
		wrong := fence
		wrong.Session = "b"
		_, err = kv.Guard(f.ctx, b, wrong)
		want(t, "a fence that names another session", err, driver.ErrFenced)
	}
	if err := a.Release(f.ctx, []driver.Fence{fence}); err != nil {
		t.Fatal(err)
	}
	_, err := kv.Guard(f.ctx, f.b, fence)
	want(t, "a released fence", err, driver.ErrFenced)
}

// TestClaimMustNameTheHolder: a claim has the right token but names a wrong, dead session. It is
// refused while the real holder is alive (rule A1).
func TestClaimMustNameTheHolder(t *testing.T) {
	t.Parallel()
	f := setup(t)
	a, b := f.join("a"), f.join("b")
	fence := f.acquire(a, "s", driver.Owner{})
	r, err := b.Acquire(f.ctx, []driver.Claim{{Shard: "s", Seen: driver.Owner{Session: "dead", Token: fence.Token}}})
	if err != nil || !errors.Is(r[0].Err, driver.ErrHeld) {
		t.Errorf("got %+v, %v; want ErrHeld", r, err)
	}
	forged := driver.Fence{Shard: "s", Session: "b", Token: fence.Token}
	want(t, "commit", f.append(b, forged, 1).Err, driver.ErrFenced)
	if err := b.Release(f.ctx, []driver.Fence{forged}); err != nil {
		t.Error(err)
	}
	if r := f.append(a, fence, 1); r.Err != nil {
		t.Errorf("after a forged release: %v", r.Err)
	}
}

func TestTrimDeletesChunks(t *testing.T) {
	t.Parallel()
	f := on(t, memory.New(), 4)
	a := f.join("a")
	fence := f.acquire(a, "s", driver.Owner{})
	for n := driver.WriteNo(1); n <= 30; n++ {
		f.append(a, fence, n)
	}
	three := []driver.Op{{Kind: driver.OpAppend}, {Kind: driver.OpAppend}, {Kind: driver.OpAppend}}
	if r := f.commit(f.ctx, a, fence, 31, three...); r.Err != nil || r.Head.Seq != 33 {
		t.Fatalf("%+v", r)
	}
	if r := f.commit(f.ctx, a, fence, 32, driver.Op{Kind: driver.OpTrim, Through: 32}); r.Err != nil || r.Head.Oldest != 33 {
		t.Fatalf("%+v", r)
	}
	f.untilChunks(1)
	page, err := f.b.ReadLog(f.ctx, "s", 32, 10)
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Seq != 33 {
		t.Errorf("the rest of a commit trimmed in its middle: %+v, %v", page, err)
	}
	_, err = f.b.ReadLog(f.ctx, "s", 31, 10)
	want(t, "an entry trimmed in the middle of a commit", err, driver.ErrTrimmed)
	r := f.commit(f.ctx, a, fence, 33, driver.Op{Kind: driver.OpTrim, Through: 34})
	var conflict *driver.ConflictError
	if !errors.As(r.Err, &conflict) || conflict.Op != 0 {
		t.Errorf("a trim beyond the head: %v; want a conflict of operation 0", r.Err)
	}
}

// untilChunks waits until only n chunks are left.
func (f *fixture) untilChunks(n int) {
	f.t.Helper()
	if !ample.Soon(f.ctx, func() bool { return len(f.store.Keys("test/!log/")) == n }) {
		keys := f.store.Keys("test/!log/")
		f.t.Fatalf("after the trim %d chunks are left, want %d: %v", len(keys), n, keys)
	}
}

// TestTrimDoesNotWait: a commit that trims, later commits, and Close do not wait for trimmed
// entries to be deleted.
func TestTrimDoesNotWait(t *testing.T) {
	t.Parallel()
	f := on(t, memory.New(), 4)
	ctx, cancel := context.WithTimeout(f.ctx, ample.Time)
	defer cancel()
	f.ctx = ctx
	a := f.join("a")
	fence := f.acquire(a, "s", driver.Owner{})
	for n := driver.WriteNo(1); n <= 30; n++ {
		f.append(a, fence, n)
	}
	trim := func(n driver.WriteNo, through driver.Seq) {
		t.Helper()
		f.link.Set(kvfault.Read, kvfault.HoldRequest)
		if r := f.commit(f.ctx, a, fence, n, driver.Op{Kind: driver.OpTrim, Through: through}); r.Err != nil || f.ctx.Err() != nil {
			t.Fatalf("%+v, %v", r, f.ctx.Err())
		}
		if err := f.link.AwaitHeld(f.ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	trim(31, 10)
	trim(32, 20) // joins the running deletion
	if r := f.append(a, fence, 33); r.Err != nil {
		t.Fatal(r.Err)
	}
	if n := f.link.Held(); n != 1 {
		t.Errorf("%d reads wait, want that of one goroutine", n)
	}
	f.link.Heal()
	f.link.Deliver()
	f.untilChunks(11)
	trim(34, 30)
	if err := f.b.Close(); err != nil || f.ctx.Err() != nil {
		t.Errorf("closing while chunks are to be deleted: %v, %v", err, f.ctx.Err())
	}
	g := on(t, f.store, 4)
	if r := g.commit(f.ctx, g.join("b"), fence, 35, driver.Op{Kind: driver.OpTrim, Through: 30}); r.Err != nil {
		t.Fatal(r.Err)
	}
	g.untilChunks(1) // the next trim deletes the rest
}

// TestReadLogIsBounded: a page of long entries has a limited size, and a page of a few entries
// costs one read of the log.
func TestReadLogIsBounded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	a := f.join("a")
	fence := f.acquire(a, "s", driver.Owner{})
	const n = 300
	size := func(seq int) int {
		if seq <= 200 {
			return 10
		}
		return 256 << 10
	}
	for i := 1; i <= n; i++ {
		if r := f.commit(f.ctx, a, fence, driver.WriteNo(i), driver.Op{Kind: driver.OpAppend, Value: make([]byte, size(i))}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for _, c := range []struct {
		after       driver.Seq
		limit       int
		least, most int // limits on the number of entries
		reads       int // besides the head's read
	}{
		{0, 1, 1, 1, 1}, {0, 8, 8, 8, 1}, {290, 8, 8, 8, 1}, {295, 100, 5, 5, 1},
		{0, 100, 100, 100, 3}, {0, 200, 200, 200, 4}, {200, 100, 15, 20, 2},
	} {
		before := f.link.Count(kvfault.Read)
		page, err := f.b.ReadLog(f.ctx, "s", c.after, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(page.Entries); got < c.least || got > c.most {
			t.Errorf("%d entries after %d: got %d, want %d to %d", c.limit, c.after, got, c.least, c.most)
		}
		if reads := f.link.Count(kvfault.Read) - before - 1; reads > c.reads {
			t.Errorf("%d entries after %d cost %d reads of the log, want %d", c.limit, c.after, reads, c.reads)
		}
		for i, e := range page.Entries {
			if e.Seq != c.after+driver.Seq(i)+1 || len(e.Payload) != size(int(e.Seq)) {
				t.Fatalf("%d entries after %d: number %d is %d, of %d bytes", c.limit, c.after, i, e.Seq, len(e.Payload))
			}
		}
	}
}

func TestCorruptRecords(t *testing.T) {
	t.Parallel()
	f := setup(t)
	a := f.join("a")
	fence := f.acquire(a, "s", driver.Owner{})
	f.append(a, fence, 1)
	f.append(a, fence, 2)
	good := f.acquire(a, "good", driver.Owner{})
	f.store.Tamper("test/!log/s/0000000000000002", []byte("junk"))
	page, err := f.b.ReadLog(f.ctx, "s", 0, 10)
	if err != nil || len(page.Entries) != 1 {
		t.Errorf("the log before a corrupt chunk: %+v, %v; want 1 entry", page, err)
	}
	_, err = f.b.ReadLog(f.ctx, "s", 1, 10)
	want(t, "the corrupt chunk", err, driver.ErrDamaged)
	f.store.Tamper("test/!head/s", []byte("junk"))
	_, err = f.b.ReadLog(f.ctx, "s", 0, 10)
	want(t, "reading under a corrupt head", err, driver.ErrDamaged)
	r := f.append(a, fence, 3)
	want(t, "a commit under a corrupt head", r.Err, driver.ErrDamaged)
	if errors.Is(r.Err, driver.ErrRetry) {
		t.Errorf("a commit under a corrupt head may be tried again: %v", r.Err)
	}
	f.store.Tamper("test/!state/shard/s", []byte("junk"))
	if err := a.Release(f.ctx, []driver.Fence{good}); err != nil {
		t.Errorf("another shard: %v", err)
	}
	rs, err := a.Acquire(f.ctx, []driver.Claim{{Shard: "s"}, {Shard: "good", Seen: driver.Owner{Token: good.Token}}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "claiming a corrupt shard", rs[0].Err, driver.ErrDamaged)
	if rs[1].Err != nil {
		t.Errorf("claiming another shard beside it: %v", rs[1].Err)
	}
	f.store.Tamper("test/!node/n-b", []byte("junk"))
	_, err = f.b.Join(f.ctx, driver.Member{Session: "b", Node: "n-b", TTL: 5 * time.Second})
	want(t, "joining under a corrupt label", err, driver.ErrDamaged)
}

func TestObserveReportsABrokenWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		a := f.join("a")
		v, err := f.b.Observe(f.ctx, driver.ObserveQuery{})
		if err != nil || !v.Reset {
			t.Fatalf("%+v, %v", v, err)
		}
		type answer struct {
			v   *driver.View
			err error
		}
		ask := func(q driver.ObserveQuery) <-chan answer {
			ch := make(chan answer, 1)
			go func() {
				v, err := f.b.Observe(f.ctx, q)
				ch <- answer{v, err}
			}()
			synctest.Wait()
			return ch
		}
		waiting := ask(driver.ObserveQuery{Since: v.Cursor})
		f.store.BreakWatches()
		if r := <-waiting; r.err == nil {
			t.Errorf("a broken watch is answered by %+v", r.v)
		}
		f.acquire(a, "s", driver.Owner{})
		if r := <-ask(driver.ObserveQuery{Since: v.Cursor}); r.err != nil || len(r.v.Shards) != 1 || r.v.Reset {
			t.Errorf("the call after a broken watch: %+v", r)
		} else {
			v = r.v
		}

		// A reader must not miss anything because of a lost history, including departures.
		f.store.BreakWatches()
		synctest.Wait()
		b := f.join("b")
		if err := b.Close(f.ctx); err != nil {
			t.Fatal(err)
		}
		fence := f.acquire(a, "t", driver.Owner{})
		f.store.Compact()
		if r := <-ask(driver.ObserveQuery{Since: v.Cursor}); r.err != nil || len(r.v.Shards) != 1 || r.v.Shards[0].Owner.Token != fence.Token {
			t.Errorf("the call after a compaction: %+v", r)
		} else {
			v = r.v
		}

		// Heartbeats wake only readers that ask for them.
		deaf := ask(driver.ObserveQuery{Since: v.Cursor})
		first := <-ask(driver.ObserveQuery{Since: v.Cursor, Beats: []driver.Beat{{Session: "a"}, {Session: "none"}}})
		if first.err != nil || len(first.v.Beats) != 1 {
			t.Fatalf("the first version of a heartbeat: %+v", first)
		}
		hears := ask(driver.ObserveQuery{Since: first.v.Cursor, Beats: first.v.Beats})
		f.link.Set(kvfault.Read, kvfault.Fail) // no read is needed to learn of a heartbeat
		if err := a.Beat(f.ctx); err != nil {
			t.Fatal(err)
		}
		if r := <-hears; r.err != nil || len(r.v.Beats) != 1 || r.v.Beats[0].Version == first.v.Beats[0].Version {
			t.Errorf("a heartbeat that was asked for: %+v", r)
		}
		select {
		case r := <-deaf:
			t.Errorf("a heartbeat that was not asked for woke a caller: %+v", r)
		default:
		}
		if err := f.b.Close(); err != nil {
			t.Error(err)
		}
		want(t, "a blocked call after Close", (<-deaf).err, driver.ErrClosed)
	})
}

func TestTailLog(t *testing.T) {
	t.Parallel()
	f := setup(t)
	a := f.join("a")
	fence := f.acquire(a, "s", driver.Owner{})
	f.append(a, fence, 1)
	p, err := f.b.TailLog(f.ctx, "", 10)
	if err != nil || !p.Reset || len(p.Heads) != 1 || p.Heads[0].Head.Seq != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	f.append(a, fence, 2)
	f.store.BreakWatches()
	f.append(a, fence, 3)
	since, next := p.Cursor, driver.Seq(2)
	for next <= 3 {
		p, err := f.b.TailLog(f.ctx, since, 1)
		if err != nil {
			continue // the broken watch
		}
		if p.Reset || len(p.Entries) != 1 || p.Entries[0].Seq != next {
			t.Fatalf("want entry %d, got %+v", next, p)
		}
		since = p.Cursor
		next++
	}
	for _, c := range []driver.Cursor{"junk", driver.Cursor(strings.Repeat("x", 1000)), since + "z"} {
		if p, err := f.b.TailLog(f.ctx, c, 1); err != nil || !p.Reset {
			t.Errorf("cursor %.20q: %+v, %v; want a reset", c, p, err)
		}
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	s := memory.New()
	s.SetLying(true)
	_, err := memory.Open(t.Context(), s, "test", nil)
	want(t, "opening a store that lies", err, driver.ErrUnsupported)
	s.SetLying(false)
	_, err = memory.Open(t.Context(), s, "test", &memory.Options{NoCreate: true})
	want(t, "opening a namespace that is missing", err, driver.ErrStoreChanged)
	b, err := memory.Open(t.Context(), s, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if left := s.Keys("test/!probe/"); len(left) > 0 {
		t.Errorf("opening left %v", left)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	ok := kv.Options{Backend: "x", Namespace: "n", Create: true, Limits: driver.Limits{BatchItems: 1, WriteOps: 1, WriteBytes: 1}}
	for name, spoil := range map[string]func(*kv.Options){
		"backend":   func(o *kv.Options) { o.Backend = "" },
		"namespace": func(o *kv.Options) { o.Namespace = "a//b" },
		"limits":    func(o *kv.Options) { o.Limits.BatchItems = 0 },
		"pipeline":  func(o *kv.Options) { o.Pipeline = -1 },
	} {
		o := ok
		spoil(&o)
		_, err := kv.Open(t.Context(), memory.New().Client(), o)
		want(t, name, err, driver.ErrInvalid)
	}
}
