package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

type commitFunc = func(next driver.Session, ctx context.Context, w []driver.Write) ([]driver.CommitResult, error)

var errReset = errors.New("connection reset")

// onLease runs f with a lease of shard "s" of member a.
func onLease(t *testing.T, f func(w *world, m *member, l *Lease)) {
	bubble(t, func(w *world) {
		m := w.member("a")
		var h leases
		w.must(m.Contend(h.hold, "s"))
		f(w, m, h.await(w, 1))
	})
}

func (m *member) entries(shard string) []Entry {
	m.w.Helper()
	page, err := m.tap.Backend.ReadLog(m.w.Context(), ShardID(shard), 0, 100_000)
	m.w.must(err)
	return page.Entries
}

// times returns a commit function that calls f for the first n commits.
func times(n int, f commitFunc) commitFunc {
	return func(next driver.Session, ctx context.Context, w []driver.Write) ([]driver.CommitResult, error) {
		if n > 0 {
			n--
			return f(next, ctx, w)
		}
		return next.Commit(ctx, w)
	}
}

func loseRequest(driver.Session, context.Context, []driver.Write) ([]driver.CommitResult, error) {
	return nil, errReset
}

func loseReply(next driver.Session, ctx context.Context, w []driver.Write) ([]driver.CommitResult, error) {
	if _, err := next.Commit(ctx, w); err != nil {
		return nil, err
	}
	return nil, errReset
}

func TestCommit(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		ctx := w.Context()
		res, err := l.Commit(ctx, Put("k", []byte("v")), Append([]byte("one")), Append([]byte("two")), Delete("none"))
		w.must(err)
		if res.Number != 1 || res.First != 1 || res.Last != 2 || len(res.Versions) != 4 || res.Versions[0] <= 0 || res.Versions[1] != 0 {
			w.Errorf("result %+v", res)
		}
		item, err := l.Get(ctx, "k")
		w.must(err)
		if string(item.Value) != "v" || item.Version != res.Versions[0] {
			w.Errorf("item %+v", item)
		}
		seq, err := l.Append(ctx, nil)
		w.must(err)
		if h := l.Head(); seq != 3 || h.Seq != 3 || h.Number != 2 || h.Token != l.Token() {
			w.Errorf("entry %d, head %+v", seq, h)
		}
		if _, err := l.Commit(ctx, PutIf("k", nil, res.Versions[0]), DeleteIf("none", 99)); err == nil {
			w.Error("a failed precondition passed")
		} else if c := (*ConflictError)(nil); !errors.As(err, &c) || c.Op != 1 || !NotApplied(err) {
			w.Errorf("conflict: %v", err)
		}
		res, err = l.Commit(ctx, Trim(2))
		w.must(err)
		if res.First != 0 || res.Versions != nil || l.Head().Oldest != 3 {
			w.Errorf("trim: %+v, head %+v", res, l.Head())
		}
		if _, err := l.ReadLog(ctx, 0, 1); !errors.Is(err, ErrTrimmed) {
			w.Errorf("read below the oldest entry: %v", err)
		}
		items, err := l.List(ctx, "", 0, 0)
		w.must(err)
		if len(items) != 1 {
			w.Errorf("items %+v", items)
		}
		for _, ops := range [][]Op{nil, {Put("/", nil)}, {Put("k", nil), Delete("k")}, {Append(make([]byte, 5<<20))}} {
			if _, err := l.Commit(ctx, ops...); !NotApplied(err) {
				w.Errorf("%d operations: %v", len(ops), err)
			}
		}
	})
}

// A new owner gets the head with its grant, or reads it before the handler starts.
func TestNewOwnerKnowsHead(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		var h leases
		w.must(m.Contend(h.hold, "s"))
		l := h.await(w, 1)
		for range 3 {
			_, err := l.Append(w.Context(), nil)
			w.must(err)
		}
		w.must(m.Withdraw(w.Context(), "s"))
		b := w.member("b")
		var hb leases
		w.must(b.Contend(hb.hold, "s"))
		lb := hb.await(w, 1)
		if got := lb.Head(); got.Seq != 3 || got.Number != 3 {
			w.Fatalf("head %+v, want entry 3", got)
		}
		// A successor learns of its lease from its view, and reads the head if the view has none.
		w.eventually("a is seen", func() bool { return len(b.View().Members) == 2 })
		w.must(m.Contend(h.hold, "s"))
		m.tap.withoutHeads()
		w.must(b.HandOver(w.Context(), m.View().Session, "s"))
		la := h.await(w, 2)
		if seq, err := la.Append(w.Context(), nil); err != nil || seq != 4 {
			w.Errorf("entry %d, %v; want 4", seq, err)
		}
		w.must(b.Contend(hb.hold, "s"))
		b.tap.onReadLog(func() error { w.Error("the head is read although the view has it"); return nil })
		w.must(m.Withdraw(w.Context(), "s")) // to the only other member
		lb = hb.await(w, 2)
		if got := lb.Head(); got.Seq != 4 || got.Number != 4 || got != la.Head() {
			w.Errorf("head %+v, want %+v", got, la.Head())
		}
		if seq, err := lb.Append(w.Context(), nil); err != nil || seq != 5 {
			w.Errorf("entry %d, %v; want 5", seq, err)
		}
	})
}

// While the head cannot be read, the handler is not called. The lease can still be released.
func TestHeadOutOfReach(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a"), w.member("b")
		var ha, hb leases
		w.must(a.Contend(ha.hold, "s", "t"))
		ha.await(w, 2)
		w.must(b.Contend(hb.hold, "s", "t"))
		w.eventually("a sees b", func() bool { return len(a.View().Members) == 2 })
		b.link.SetError(kvfault.Read, errReset)
		b.tap.withoutHeads()
		w.must(a.HandOver(w.Context(), b.View().Session, "s", "t"))
		w.eventually("grants", func() bool { return len(b.said("grant")) == 2 })
		time.Sleep(ttl)
		if hb.count() != 0 || b.View().Leases[0].State != LeaseStarting {
			w.Fatalf("handler called without the head; leases %+v", b.View().Leases)
		}
		w.must(b.Withdraw(w.Context(), "s"))
		if len(b.said("start")) != 0 {
			w.Error("handler called for a shard that was withdrawn")
		}
		b.link.Heal()
		hb.await(w, 1)
		if got := b.said("start"); !slices.Equal(got, []string{"start t"}) {
			w.Errorf("hooks %q", got)
		}
	})
}

func TestGroupCommit(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			time.Sleep(time.Millisecond)
			return next.Commit(ctx, ws)
		})
		const producers, each = 64, 20
		var mu sync.Mutex
		got := make(map[Seq]string)
		var wg sync.WaitGroup
		for p := range producers {
			wg.Go(func() {
				last := Seq(0)
				for i := range each {
					payload := []byte(fmt.Sprintf("%d/%d", p, i))
					seq, err := l.Append(w.Context(), payload)
					if err != nil || seq <= last {
						w.Errorf("entry %d after %d: %v", seq, last, err)
						return
					}
					last = seq
					mu.Lock()
					got[seq] = string(payload)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		entries := m.entries("s")
		if len(got) != producers*each || len(entries) != producers*each {
			w.Fatalf("%d numbers for %d entries, want %d", len(got), len(entries), producers*each)
		}
		for i, e := range entries {
			if e.Seq != Seq(i+1) || string(e.Payload) != got[e.Seq] || e.Token != l.Token() {
				w.Fatalf("entry %d is %+v, its caller wrote %q", i+1, e, got[Seq(i+1)])
			}
		}
		if n := len(m.tap.sizes); n > 2*each+2 {
			w.Errorf("%d commits for %d appends", n, producers*each)
		}
	})
}

// Commits that must fail or succeed separately are not merged. These are commits with a common key,
// a precondition or a trim, and commits that together exceed the limits.
func TestWhatIsMerged(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		gate := make(chan struct{})
		m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			<-gate
			return next.Commit(ctx, ws)
		})
		l.e.info.Limits.WriteBytes = 1000
		commits := [][]Op{
			{Append(nil)},                           // in flight
			{Append(nil), Append(nil)},              // with the next two
			{Put("a", nil)},                         //
			{Put("b", nil), Delete("c")},            //
			{Put("a", []byte("2"))},                 // the same key again: the next write
			{PutIf("d", nil, 17)},                   // alone, and in conflict
			{Append(nil)},                           //
			{Trim(1)},                               // alone
			{Append(make([]byte, 600))},             //
			{Append(make([]byte, 600))},             // too large together
			{Put("e", nil), Append([]byte("last"))}, // fits with the one before
		}
		results := make([]Committed, len(commits))
		errs := make([]error, len(commits))
		var wg sync.WaitGroup
		for i, ops := range commits {
			wg.Go(func() { results[i], errs[i] = l.Commit(w.Context(), ops...) })
			synctest.Wait() // the commits are queued in this order
		}
		close(gate)
		wg.Wait()
		if want := []int{1, 5, 1, 1, 1, 1, 1, 3}; !slices.Equal(m.tap.sizes, want) {
			w.Errorf("operations of each write: %v, want %v", m.tap.sizes, want)
		}
		for i, err := range errs {
			if conflict := errors.Is(err, ErrConflict); conflict != (i == 5) || err != nil && !conflict {
				w.Errorf("commit %d: %v", i, err)
			}
		}
		if r := results[1]; r.First != 2 || r.Last != 3 || r.Versions != nil {
			w.Errorf("second: %+v", r)
		}
		if r := results[3]; len(r.Versions) != 2 || r.Versions[0] == 0 || r.First != 0 {
			w.Errorf("fourth: %+v", r)
		}
		if r := results[10]; r.First != 7 || r.Last != 7 || len(r.Versions) != 2 {
			w.Errorf("last: %+v", r)
		}
	})
}

func TestUnknownOutcomeIsSettled(t *testing.T) {
	for name, f := range map[string]commitFunc{"request lost": loseRequest, "reply lost": loseReply} {
		t.Run(name, func(t *testing.T) {
			onLease(t, func(w *world, m *member, l *Lease) {
				for n := range 3 {
					m.tap.onCommit(times(n, f))
					seq, err := l.Append(w.Context(), []byte{byte(n)})
					if err != nil || seq != Seq(n+1) {
						w.Fatalf("with %d lost: entry %d, %v", n, seq, err)
					}
					m.tap.onCommit(times(n, f))
					res, err := l.Commit(w.Context(), PutIf(fmt.Sprint("k", n), nil, Absent))
					if err != nil || name == "reply lost" && n > 0 && res.Versions != nil {
						w.Fatalf("precondition with %d lost: %+v, %v", n, res, err)
					}
				}
				if n := len(m.entries("s")); n != 3 || l.Head().Number != 6 {
					w.Errorf("%d entries, head %+v: something was applied twice", n, l.Head())
				}
			})
		})
	}
}

// takeOver preempts the shard's owner and appends entries.
func (w *world) takeOver(m *member, appends int) {
	ctx := context.Background()
	b := m.tap.Backend
	s, err := b.Join(ctx, Member{Session: newSessionID(), Node: "thief", TTL: ttl})
	w.must(err)
	v, err := b.Observe(ctx, driver.ObserveQuery{})
	w.must(err)
	var seen driver.Owner
	for _, st := range v.Shards {
		if st.Shard == "s" {
			seen = st.Owner
		}
	}
	got, err := s.Acquire(ctx, []driver.Claim{{Shard: "s", Seen: seen, Preempt: true}})
	w.must(err)
	w.must(got[0].Err)
	for i := range appends {
		r, err := s.Commit(ctx, []driver.Write{{Fence: got[0].Fence, Number: got[0].Head.Number + 1 + driver.WriteNo(i), Nonce: 9, Ops: []Op{Append([]byte("thief"))}}})
		w.must(err)
		w.must(r[0].Err)
	}
}

func TestFencedCommit(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		gate := make(chan struct{})
		m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			<-gate
			return next.Commit(ctx, ws)
		})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := l.Append(w.Context(), nil); !errors.Is(err, ErrFenced) || !NotApplied(err) {
					w.Errorf("append of a fenced lease: %v", err)
				}
			})
		}
		synctest.Wait()
		m.tap.missChanges() // only the refusal reports the loss
		w.takeOver(m, 0)
		close(gate)
		wg.Wait()
		synctest.Wait()
		if err := l.Err(); !errors.Is(err, ErrFenced) || l.Context().Err() == nil {
			w.Errorf("Err is %v, want ErrFenced", err)
		}
		if n := len(m.entries("s")); n != 0 {
			w.Errorf("%d entries of a zombie", n)
		}
	})
}

// The store's answer to a write in doubt ends the lease.
func TestUnknownOutcomeThenFenced(t *testing.T) {
	for _, c := range []struct {
		name    string
		first   commitFunc
		ops     []Op
		appends int // by the new owner
		want    error
	}{
		{"applied, nothing since", loseReply, []Op{Append([]byte("mine"))}, 0, nil},
		{"applied, others since", loseReply, []Op{Append([]byte("mine"))}, 2, nil},
		{"not applied, nothing since", loseRequest, []Op{Append([]byte("mine"))}, 0, ErrFenced},
		{"not applied, one other since", loseRequest, []Op{Append([]byte("mine"))}, 1, ErrFenced},
		{"not applied, others since", loseRequest, []Op{Append([]byte("mine"))}, 2, ErrFenced},
		{"applied without an entry", loseReply, []Op{Put("k", nil)}, 0, nil},
		{"cannot be told", loseReply, []Op{Put("k", nil)}, 2, ErrUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			onLease(t, func(w *world, m *member, l *Lease) {
				_, err := l.Append(w.Context(), []byte("before"))
				w.must(err)
				m.tap.onCommit(times(1, func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
					res, err := c.first(next, ctx, ws)
					w.takeOver(m, c.appends)
					return res, err
				}))
				res, err := l.Commit(w.Context(), c.ops...)
				if !errors.Is(err, c.want) || NotApplied(err) != (c.want == ErrFenced) {
					w.Fatalf("%v, want %v", err, c.want)
				}
				mine := 0
				for _, e := range m.entries("s") {
					if string(e.Payload) == "mine" {
						mine++
						if e.Seq != res.Last {
							w.Errorf("told entry %d, is %d", res.Last, e.Seq)
						}
					}
				}
				if applied := c.want == nil && c.ops[0].Kind == driver.OpAppend; applied != (mine == 1) {
					w.Errorf("%d entries of mine", mine)
				}
				if _, err := l.Append(w.Context(), nil); !NotApplied(err) {
					w.Errorf("append after the end: %v", err)
				}
			})
		})
	}
}

// A commit that was lost with a server is soon sent again. The pause does not grow with the length
// of the outage.
func TestCommitInDoubtIsSentAgainSoon(t *testing.T) {
	for _, away := range []time.Duration{100 * time.Millisecond, time.Second, 1900 * time.Millisecond} {
		t.Run(away.String(), func(t *testing.T) {
			onLease(t, func(w *world, m *member, l *Lease) {
				back := time.Now().Add(away)
				m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
					if time.Now().Before(back) {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return next.Commit(ctx, ws)
				})
				began := time.Now()
				_, err := l.Append(w.Context(), []byte("x"))
				w.must(err)
				if late := time.Since(began) - away; late > 600*time.Millisecond {
					w.Errorf("the commit was sent again %v after the store came back", late)
				}
			})
		})
	}
}

func TestStoreOutOfReach(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		m.tap.onCommit(loseRequest)
		m.link.Cut()
		began := time.Now()
		if _, err := l.Append(w.Context(), nil); !errors.Is(err, ErrUnknown) || NotApplied(err) {
			w.Errorf("append: %v, want ErrUnknown", err)
		}
		if took := time.Since(began); took > 2*ttl+m.o.CallTimeout {
			w.Errorf("told after %v, want at most a call time-out after the lease's end", took)
		}
		m.link.Heal()
		m.tap.onCommit(nil)
	})
}

func TestCallerGivesUp(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		gate := make(chan struct{})
		m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			<-gate
			return next.Commit(ctx, ws)
		})
		ctx, cancel := context.WithCancelCause(w.Context())
		boom := errors.New("boom")
		errs := make([]error, 2)
		var wg sync.WaitGroup
		payload := []byte("mine")
		for i := range errs {
			wg.Go(func() { _, errs[i] = l.Append(ctx, payload) })
			synctest.Wait()
		}
		cancel(boom)
		wg.Wait()
		copy(payload, "gone") // the caller owns it again
		if !errors.Is(errs[0], ErrUnknown) || !errors.Is(errs[0], boom) || NotApplied(errs[0]) {
			w.Errorf("in flight: %v", errs[0])
		}
		if !errors.Is(errs[1], ErrRetry) || !errors.Is(errs[1], boom) || !NotApplied(errs[1]) {
			w.Errorf("queued: %v", errs[1])
		}
		if _, err := l.Append(ctx, nil); !NotApplied(err) || !errors.Is(err, boom) {
			w.Errorf("with a dead context: %v", err)
		}
		close(gate)
		seq, err := l.Append(w.Context(), nil)
		if err != nil || seq != 2 { // the commit in flight continued
			w.Errorf("entry %d, %v", seq, err)
		}
		if got := string(m.entries("s")[0].Payload); got != "mine" {
			w.Errorf("what was in flight says %q", got)
		}
	})
}

// S12: a lease is not released while a commit whose caller gave up is in progress.
func TestReleaseWaitsForCommit(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		gate := make(chan struct{})
		m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			<-gate
			m.tap.note("commit")
			return next.Commit(ctx, ws)
		})
		var h leases
		w.must(m.Contend(func(ctx context.Context, l *Lease) error {
			h.add(l)
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			_, err := l.Append(short, nil)
			return err
		}, "s"))
		l := h.await(w, 1)
		time.Sleep(100 * time.Millisecond)
		if got := m.tap.noted(); len(got) != 0 {
			w.Errorf("store calls %q", got)
		}
		if _, err := l.Append(w.Context(), nil); !errors.Is(err, ErrReleased) {
			w.Errorf("append after the handler returned: %v", err)
		}
		close(gate)
		w.eventually("release", func() bool {
			return slices.Equal(m.tap.noted()[:min(2, len(m.tap.noted()))], []string{"commit", "release s"})
		})
	})
}

// A commit that waits behind a write in flight is not sent once trust has ended, even if no other
// session has the shard yet.
func TestNothingIsSentAfterLapse(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		gate := make(chan struct{})
		m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			<-gate
			return next.Commit(context.WithoutCancel(ctx), ws)
		})
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { _, errs[i] = l.Append(w.Context(), nil) })
			synctest.Wait()
		}
		m.link.Set(kvfault.Heartbeat, kvfault.DropRequest)
		time.Sleep(l.Remaining())
		synctest.Wait()
		close(gate)
		wg.Wait()
		if errs[0] != nil {
			w.Errorf("in flight: %v", errs[0])
		}
		if !errors.Is(errs[1], ErrLapsed) || !NotApplied(errs[1]) || len(m.tap.sizes) != 1 {
			w.Errorf("queued: %v after %d commits", errs[1], len(m.tap.sizes))
		}
	})
}

// If the store certainly did not apply a write, it is sent again while the lease is valid, and
// never after that (S5).
func TestRefusedCommitIsNotSentAfterLapse(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		var mu sync.Mutex
		before, after := 0, 0
		m.tap.onCommit(func(driver.Session, context.Context, []driver.Write) ([]driver.CommitResult, error) {
			mu.Lock()
			defer mu.Unlock()
			if l.Err() == nil {
				before++
			} else {
				after++
			}
			return nil, fmt.Errorf("deadlock: %w", ErrRetry)
		})
		m.link.Set(kvfault.Heartbeat, kvfault.DropRequest)
		if _, err := l.Append(w.Context(), nil); !errors.Is(err, ErrLapsed) || !NotApplied(err) {
			w.Errorf("append: %v, want ErrLapsed", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if before < 2 || after != 0 {
			w.Errorf("sent %d times under the lease, %d times after it; want several, and none", before, after)
		}
	})
}

// A read is not returned if the lease ended before the read.
func TestReadIsCheckedAfterwards(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		m.link.Cut()
		got, err := guarded(w.Context(), l, callGet, func(context.Context) (int, error) { time.Sleep(l.Remaining()); return 7, nil })
		if got != 0 || !errors.Is(err, ErrLapsed) {
			w.Errorf("read %d, %v; want ErrLapsed", got, err)
		}
	})
}

func TestRetryableRefusalIsRetried(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		m.tap.onCommit(times(3, func(driver.Session, context.Context, []driver.Write) ([]driver.CommitResult, error) {
			return nil, fmt.Errorf("deadlock: %w", ErrRetry)
		}))
		seq, err := l.Append(w.Context(), nil)
		if err != nil || seq != 1 {
			w.Errorf("entry %d, %v", seq, err)
		}
		m.tap.onCommit(func(driver.Session, context.Context, []driver.Write) ([]driver.CommitResult, error) {
			return nil, fmt.Errorf("disk full: %w", ErrRetry)
		})
		m.link.Cut()
		if _, err := l.Append(w.Context(), nil); !errors.Is(err, ErrRetry) || !NotApplied(err) {
			w.Errorf("refused until the lease was over: %v", err)
		}
	})
}

// If another writer used the lease's fence, the lease's next commit is refused once. The commit
// then gets the following number.
func TestNumberIsTakenAnew(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		r, err := l.sess.(*tapSession).Session.Commit(w.Context(), []driver.Write{{Fence: l.Fence(), Number: 1, Nonce: 5, Ops: []Op{Append(nil)}}})
		w.must(err)
		w.must(r[0].Err)
		seq, err := l.Append(w.Context(), nil)
		if err != nil || seq != 2 {
			w.Errorf("entry %d, %v", seq, err)
		}
	})
}

func TestRefusalOfMergedWriteIsOnesOwn(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		gate := make(chan struct{})
		m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			<-gate
			for _, op := range ws[0].Ops {
				if string(op.Value) == "bad" {
					return nil, fmt.Errorf("refused: %w", ErrInvalid)
				}
			}
			return next.Commit(ctx, ws)
		})
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for i, v := range []string{"a", "b", "bad", "c"} {
			wg.Go(func() { _, errs[i] = l.Append(w.Context(), []byte(v)) })
			synctest.Wait()
		}
		close(gate)
		wg.Wait()
		for i, err := range errs {
			if errors.Is(err, ErrInvalid) != (i == 2) || err != nil && i != 2 {
				w.Errorf("append %d: %v", i, err)
			}
		}
	})
}

// S5: the parts of a refused merged write wait for another turn. The lease is checked again before
// they are sent, and they can be withdrawn.
func TestPartsOfARefusedWriteLookAtTheLease(t *testing.T) {
	const parts = 20
	onLease(t, func(w *world, m *member, l *Lease) {
		gate := make(chan struct{})
		var mu sync.Mutex
		down, first, late := false, make(map[driver.Nonce]bool), 0
		m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
			<-gate
			mu.Lock()
			if !first[ws[0].Nonce] && l.Err() != nil {
				late++
			}
			first[ws[0].Nonce] = true
			was := down
			down = down || len(ws[0].Ops) == parts
			now := down
			mu.Unlock()
			switch {
			case now && !was: // from then on, the store is silent
				m.link.Cut()
				return nil, fmt.Errorf("the server's limit: %w", ErrTooLarge)
			case now:
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return next.Commit(ctx, ws)
		})
		ctx, giveUp := context.WithCancel(w.Context())
		errs := make([]error, parts+1)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				if i == parts {
					_, errs[i] = l.Append(ctx, nil)
				} else {
					_, errs[i] = l.Append(w.Context(), nil)
				}
			})
			synctest.Wait()
		}
		close(gate)
		synctest.Wait()
		giveUp()
		wg.Go(func() {
			time.Sleep(l.Remaining())
			synctest.Wait()
		})
		wg.Wait()
		ended := time.Now()
		sent := 0
		for i, err := range errs {
			switch {
			case i == 0: // before the merged write
				w.must(err)
			case i == parts:
				if !errors.Is(err, ErrRetry) || !NotApplied(err) {
					w.Errorf("part %d, taken back while it waited: %v", i, err)
				}
			case errors.Is(err, ErrUnknown) && !NotApplied(err):
				sent++
			case !errors.Is(err, ErrLapsed) || !NotApplied(err):
				w.Errorf("part %d: %v, want ErrLapsed", i, err)
			}
		}
		if late > 0 || sent != parts/2 {
			w.Errorf("%d sends of what was not sent before the lease ended, and %d of %d parts in doubt; want none, and half",
				late, sent, parts)
		}
		m.stop()
		err := <-m.done
		m.done <- err
		if took := time.Since(ended); took > m.o.DrainBudget {
			w.Errorf("Run ended after %v: %v", took, err)
		}
		m.link.Heal()
		m.tap.onCommit(nil)
	})
}

// If a commit waits behind a commit with an unknown outcome, the waiting commit's error shows that
// it was not sent (S16).
func TestBehindAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, why := range []error{fmt.Errorf("commit: %w: no answer", ErrUnknown), ErrFenced, &RevokedError{}} {
		if err := notSent("s", why); !NotApplied(err) {
			t.Errorf("%v: refused with %v, which does not say that nothing was applied", why, err)
		}
	}
}

// F1: a read under a lease sees each commit that the lease sent before it, even if the commit's
// caller gave up. Otherwise, a caller could read a value that its own earlier commit is about to
// replace.
func TestReadAfterCommitInFlight(t *testing.T) {
	reads := map[string]func(ctx context.Context, l *Lease) (int, error){
		"Get": func(ctx context.Context, l *Lease) (n int, err error) {
			item, err := l.Get(ctx, "k")
			if item != nil {
				n = 1
			}
			return n, err
		},
		"List": func(ctx context.Context, l *Lease) (int, error) {
			items, err := l.List(ctx, "k", 0, 0)
			return len(items), err
		},
		"ReadLog": func(ctx context.Context, l *Lease) (int, error) {
			page, err := l.ReadLog(ctx, 0, 10)
			if err != nil {
				return 0, err
			}
			return len(page.Entries), nil
		},
	}
	type outcome struct {
		n   int
		err error
	}
	for name, read := range reads {
		// leave sends a commit, keeps it in flight, and makes its caller give up.
		leave := func(w *world, m *member, l *Lease) {
			m.link.Set(kvfault.Write, kvfault.HoldRequest)
			ctx, cancel := context.WithCancel(w.Context())
			done := make(chan error, 1)
			go func() {
				_, err := l.Commit(ctx, Put("k", nil), Append(nil))
				done <- err
			}()
			w.must(m.link.AwaitHeld(w.Context(), 1))
			cancel()
			if err := <-done; !errors.Is(err, ErrUnknown) {
				w.Errorf("the caller that gave up got %v", err)
			}
			m.link.Set(kvfault.Write, kvfault.None)
		}
		t.Run(name+"/waits", func(t *testing.T) {
			onLease(t, func(w *world, m *member, l *Lease) {
				leave(w, m, l)
				got := make(chan outcome, 1)
				go func() {
					n, err := read(w.Context(), l)
					got <- outcome{n, err}
				}()
				time.Sleep(ttl / 10)
				select {
				case o := <-got:
					w.Errorf("it read %+v while the commit was on its way", o)
				default:
				}
				m.link.Deliver()
				if o := <-got; o.n != 1 || o.err != nil {
					w.Errorf("it read %+v after the commit", o)
				}
			})
		})
		t.Run(name+"/context", func(t *testing.T) {
			onLease(t, func(w *world, m *member, l *Lease) {
				leave(w, m, l)
				from := time.Now()
				ctx, cancel := context.WithTimeout(w.Context(), ttl/10)
				defer cancel()
				if n, err := read(ctx, l); !errors.Is(err, context.DeadlineExceeded) || time.Since(from) != ttl/10 {
					w.Errorf("it read %d, %v, after %v", n, err, time.Since(from))
				}
				m.link.Deliver()
			})
		})
		t.Run(name+"/lease", func(t *testing.T) {
			onLease(t, func(w *world, m *member, l *Lease) {
				leave(w, m, l)
				m.link.Cut()
				if n, err := read(w.Context(), l); !errors.Is(err, ErrLost) {
					w.Errorf("it read %d, %v", n, err)
				}
			})
		})
		// The store refuses two commits that were sent together, and one of their callers gave
		// up.
		t.Run(name+"/divided", func(t *testing.T) {
			onLease(t, func(w *world, m *member, l *Lease) {
				hold, calls := make(chan struct{}), 0
				m.tap.onCommit(func(next driver.Session, ctx context.Context, ws []driver.Write) ([]driver.CommitResult, error) {
					calls++
					switch calls {
					case 1: // the other commits gather behind it
						<-hold
					case 2:
						<-hold
						return nil, ErrTooLarge
					case 3, 4: // the two commits, each in a separate call
						<-hold
					}
					return next.Commit(ctx, ws)
				})
				ctx, cancel := context.WithCancel(w.Context())
				done := make(chan error, 3)
				commit := func(ctx context.Context, ops ...Op) {
					go func() {
						_, err := l.Commit(ctx, ops...)
						done <- err
					}()
					synctest.Wait()
				}
				commit(w.Context(), Put("other", nil))
				commit(w.Context(), Put("another", nil))
				commit(ctx, Put("k", nil), Append(nil))
				hold <- struct{}{}
				w.must(<-done)
				synctest.Wait()
				cancel()
				if err := <-done; !errors.Is(err, ErrUnknown) {
					w.Errorf("the caller that gave up got %v", err)
				}
				hold <- struct{}{}
				synctest.Wait() // its commit waits behind the other commit
				got := make(chan outcome, 1)
				go func() {
					n, err := read(w.Context(), l)
					got <- outcome{n, err}
				}()
				synctest.Wait()
				hold <- struct{}{}
				w.must(<-done)
				synctest.Wait()
				select {
				case o := <-got:
					w.Errorf("it read %+v before the second of the two", o)
					return
				default:
				}
				hold <- struct{}{}
				if o := <-got; o.n != 1 || o.err != nil {
					w.Errorf("it read %+v", o)
				}
			})
		})
	}
}
