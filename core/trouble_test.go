package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// rights describes the calls that a store denies one member.
type rights struct {
	mu     sync.Mutex
	denied map[intercept.Op]bool
	asked  []time.Time // when commits were denied
	log    strings.Builder
}

var errNoRight = fmt.Errorf("tenure: %w: %w: permission denied for table tenure_logs (SQLSTATE 42501)", driver.ErrRetry, driver.ErrDenied)

func (r *rights) take(ops ...intercept.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied = map[intercept.Op]bool{}
	for _, op := range ops {
		r.denied[op] = true
	}
}

func (r *rights) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *rights) lines(of string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.log.String(), of)
}

func (r *rights) calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked)
}

// member returns a member with these rights.
func (r *rights) member(w *world, node string, change ...func(*Options)) *member {
	w.Helper()
	m := w.newMember(node, append(change, func(o *Options) {
		o.Logger, o.BackoffMax = slog.New(slog.NewTextHandler(r, nil)), 3*ttl
	})...)
	m.b = intercept.Wrap(m.tap, func(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
		r.mu.Lock()
		denied := r.denied[c.Op]
		if denied && c.Op == intercept.Commit {
			r.asked = append(r.asked, time.Now())
		}
		r.mu.Unlock()
		if denied {
			return errNoRight
		}
		return proceed(ctx)
	})
	return m.run()
}

// append is a handler that appends every 100 ms until its context ends.
func (h *leases) append(ctx context.Context, l *Lease) error {
	h.add(l)
	for ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		if _, err := l.Append(l.Context(), []byte("x")); errors.Is(err, ErrLost) {
			return nil
		}
	}
	return nil
}

// C18: a leader whose commits the store denies reports it within a TTL and gives its shard to a
// member that may commit. It probes once per BackoffMax, and is eligible again after a probe has
// succeeded.
func TestDeniedLeaderGivesWay(t *testing.T) {
	bubble(t, func(w *world) {
		var ra, rb rights
		a := ra.member(w, "a", func(o *Options) { o.Priority = 1 })
		var la, lb leases
		w.must(a.Contend(la.append, "s"))
		l := la.await(w, 1)
		b := rb.member(w, "b")
		w.must(b.Contend(lb.append, "s"))
		w.eventually("b sees a", func() bool { return b.owner("s") == "a" && len(a.View().Members) == 2 })

		ra.take(intercept.Commit)
		time.Sleep(ttl + ttl/20)
		synctest.Wait()
		for _, want := range []string{"commit refused since ", "SQLSTATE 42501"} {
			if got := a.View().Trouble; !strings.Contains(got, want) {
				t.Errorf("a TTL later the view says %q", got)
			}
		}
		if ra.lines("tenure: store refuses calls") != 1 || ra.lines("docs/backends/memory.md") != 1 || ra.lines("SQLSTATE 42501") == 0 {
			t.Errorf("the log says:\n%s", ra.log.String())
		}
		w.eventually("b knows", func() bool {
			m, _ := b.View().Member(a.View().Session)
			return strings.Contains(m.Trouble(), "SQLSTATE 42501") && a.View().Trouble != "" && b.View().Trouble == ""
		})
		time.Sleep(ttl)
		synctest.Wait()
		if b.owner("s") != "b" || lb.count() != 1 || l.Err() == nil {
			t.Errorf("two TTLs later s belongs to %q", b.owner("s"))
		}
		w.must(a.Update(w.Context(), func(st *MemberState) {
			if len(st.Meta) > 0 {
				t.Errorf("an update gets %v", st.Meta)
			}
			st.Meta = map[string]string{"address": "a:1"}
		}))
		w.eventually("a published both", func() bool {
			m, _ := b.View().Member(a.View().Session)
			return m.Meta["address"] == "a:1" && m.Trouble() != ""
		})
		from := ra.calls()
		time.Sleep(30 * ttl)
		synctest.Wait()
		if n := ra.calls() - from; n < 5 || n > 11 {
			t.Errorf("%d probes in 10 BackoffMax", n)
		}
		if b.owner("s") != "b" || la.count() != 1 || a.View().Ineligible != deniedWhy {
			t.Errorf("s belongs to %q, a led %d times and is not eligible: %q", b.owner("s"), la.count(), a.View().Ineligible)
		}
		ra.take()
		w.eventually("a is eligible", func() bool { return a.View().Ineligible == "" && a.View().Trouble == "" })
		w.eventually("b knows", func() bool {
			return b.View().Trouble == "" && !slices.ContainsFunc(b.View().Members, func(m Member) bool { return m.Trouble() != "" })
		})
		w.eventually("the end is logged", func() bool { return ra.lines("tenure: store no longer refuses calls") == 1 })
		w.eventually("the probe's lock is free", func() bool { return b.owner(string(probeLock)) == "" })
		w.must(b.end())
		w.eventually("a owns s", func() bool { return a.owner("s") == "a" })
	})
}

// C18: if no member may commit, the lease stays with its holder, whose commits continue once the
// permission is granted again.
func TestDeniedLeasesDoNotCircle(t *testing.T) {
	bubble(t, func(w *world) {
		var ra, rb rights
		a, b := ra.member(w, "a"), rb.member(w, "b")
		var la, lb leases
		w.must(a.Contend(la.append, "s"))
		la.await(w, 1)
		w.must(b.Contend(lb.append, "s"))
		w.eventually("b sees a", func() bool { return b.owner("s") == "a" })
		ra.take(intercept.Commit)
		rb.take(intercept.Commit)
		time.Sleep(10 * ttl)
		n := la.count() + lb.count()
		time.Sleep(600 * ttl)
		synctest.Wait()
		if more := la.count() + lb.count() - n; n > 3 || more > 0 {
			t.Errorf("%d leases at first, and %d later", n, more)
		}
		for _, r := range []*rights{&ra, &rb} {
			if n := r.lines("tenure: store refuses calls"); n < 1 || n > 6 {
				t.Errorf("%d lines in ten minutes", n)
			}
		}
		ra.take()
		rb.take()
		w.eventually("both are eligible", func() bool { return a.View().Ineligible == "" && b.View().Ineligible == "" })
		l := la.await(w, la.count())
		if b.owner("s") == "b" {
			l = lb.await(w, lb.count())
		}
		_, err := l.Append(w.Context(), []byte("y"))
		w.must(err)
	})
}

// C18: a leader that may not release its shard sends no heartbeat, so that others evict it.
func TestDeniedReleases(t *testing.T) {
	bubble(t, func(w *world) {
		var ra, rb rights
		a, b := ra.member(w, "a"), rb.member(w, "b")
		var la, lb leases
		w.must(a.Contend(la.append, "s"))
		la.await(w, 1)
		w.must(b.Contend(lb.append, "s"))
		w.eventually("b sees a", func() bool { return b.owner("s") == "a" && len(a.View().Members) == 2 })
		ra.take(intercept.Commit, intercept.Transfer, intercept.Release)
		time.Sleep(3 * ttl)
		synctest.Wait()
		if b.owner("s") != "b" {
			t.Errorf("three TTLs later s belongs to %q", b.owner("s"))
		}
		w.eventually("a joins again", func() bool { return a.View().Session != "" && a.View().Trusted })
		s := a.View().Session
		time.Sleep(20 * ttl)
		synctest.Wait()
		if a.View().Session != s || b.owner("s") != "b" {
			t.Errorf("a lost its session again, and s is %q's", b.owner("s"))
		}
		ra.take()
		w.eventually("a is eligible", func() bool { return a.View().Ineligible == "" })
	})
}

// C18: if the store denies a leader everything, including heartbeats, another member leads within
// three TTLs. Ten minutes without permissions produce few log lines.
func TestDeniedEverything(t *testing.T) {
	bubble(t, func(w *world) {
		var ra, rb rights
		a, b := ra.member(w, "a"), rb.member(w, "b")
		var la, lb leases
		w.must(a.Contend(la.append, "s"))
		la.await(w, 1)
		w.must(b.Contend(lb.append, "s"))
		w.eventually("b sees a", func() bool { return b.owner("s") == "a" && len(a.View().Members) == 2 })
		all := []intercept.Op{intercept.Observe, intercept.ReadLog, intercept.TailLog, intercept.Get, intercept.List, intercept.Join,
			intercept.Beat, intercept.Acquire, intercept.Transfer, intercept.Release, intercept.Commit, intercept.Update, intercept.Evict}
		ra.take(all...)
		time.Sleep(ttl)
		synctest.Wait()
		if ra.lines("tenure: store refuses calls") == 0 || !strings.Contains(a.View().Trouble, "42501") {
			t.Errorf("a TTL later the view says %q", a.View().Trouble)
		}
		time.Sleep(2 * ttl)
		synctest.Wait()
		if b.owner("s") != "b" {
			t.Errorf("three TTLs later s belongs to %q", b.owner("s"))
		}
		time.Sleep(10 * time.Minute)
		if n := ra.lines("level="); n > 50 {
			t.Errorf("%d lines in ten minutes", n)
		}
		ra.take()
		w.eventually("a takes part", func() bool { return a.View().Trusted && a.View().Trouble == "" && a.View().Ineligible == "" })
	})
}

// Each kind of call that the store refuses is logged and shown after a TTL, whether or not the call
// is denied.
func TestRefusedCallsAreTold(t *testing.T) {
	for _, op := range []intercept.Op{intercept.Beat, intercept.Acquire, intercept.Update, intercept.Observe} {
		t.Run(string(op), func(t *testing.T) {
			bubble(t, func(w *world) {
				var r rights
				r.take(op)
				m := r.member(w, "a")
				var held leases
				w.must(m.Contend(held.hold, "s"))
				w.eventually("joined", func() bool { return m.View().Session != "" })
				if op == intercept.Update {
					go func() { _ = m.Update(w.Context(), func(st *MemberState) { st.Weight = 7 }) }()
				}
				w.eventually("a line", func() bool { return r.lines("tenure: store refuses calls") == 1 })
				if !slices.Contains([]string{"", deniedWhy}, m.View().Ineligible) || !strings.Contains(m.View().Trouble, "42501") {
					t.Errorf("the view says %q", m.View().Trouble)
				}
				time.Sleep(10 * ttl)
				if n := r.lines("tenure: store refuses calls"); n > 3 { // for example, of the eviction of other members
					t.Errorf("%d lines in ten TTLs", n)
				}
				r.take()
				w.eventually("no trouble", func() bool { return m.View().Trouble == "" })
			})
		})
	}
}

// A stuck handler is published until it returns, with the time at which it became stuck.
func TestStuckIsPublished(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.member("a", func(o *Options) { o.Watchdog = ttl }), w.member("b")
		var lb leases
		w.must(b.Contend(lb.hold, "t"))
		var returned atomic.Bool
		back := make(chan struct{})
		w.must(a.Contend(func(context.Context, *Lease) error { <-back; returned.Store(true); return nil }, "s"))
		trouble := func() string {
			for _, m := range b.View().Members {
				if m.Node == "a" {
					return m.Trouble()
				}
			}
			return ""
		}
		w.eventually("b knows", func() bool { return strings.HasPrefix(trouble(), "stuck since 2000-01-01T00:00:0") })
		if got := trouble(); !strings.Contains(got, `handler of shard "s"`) || got != a.View().Trouble || b.View().Trouble != "" {
			t.Errorf("b says %q of a, which says %q", got, a.View().Trouble)
		}
		close(back)
		w.eventually("b knows the end", func() bool { return returned.Load() && trouble() == "" && a.View().Trouble == "" })
	})
}

// A problem that the application reports appears in all members' views and in the log, and no shard
// moves. A function that hangs is a problem too.
func TestReportedTrouble(t *testing.T) {
	bubble(t, func(w *world) {
		var h health
		var r rights
		a := w.member("a", func(o *Options) {
			o.Trouble, o.Logger = h.ask, slog.New(slog.NewTextHandler(&r, nil))
		})
		b := w.member("b")
		var la, lb leases
		w.must(a.Contend(la.hold, "s"))
		la.await(w, 1)
		w.must(b.Contend(lb.hold, "s"))
		said := func(want string) {
			w.Helper()
			w.eventually("both know "+want, func() bool {
				for _, m := range b.View().Members {
					if m.Node == "a" {
						return m.Trouble() == want && a.View().Trouble == want
					}
				}
				return false
			})
		}
		said("")
		h.set(errors.New("member c of the quorum\ndoes not answer " + strings.Repeat("x", 1000)))
		w.eventually("the text is bounded", func() bool { n := len(a.View().Trouble); return n > 0 && n <= maxReason })
		h.set(nil)
		said("")
		h.set(errors.New("member c does not answer"))
		said("member c does not answer")
		h.set(nil)
		said("")
		hangs := make(chan struct{})
		h.mu.Lock()
		h.hangs = hangs
		h.mu.Unlock()
		said(fmt.Sprintf("no answer within %v", ttl/3))
		close(hangs)
		h.mu.Lock()
		h.hangs, h.err = nil, nil
		h.mu.Unlock()
		said("")
		time.Sleep(10 * ttl)
		if r.lines("process reports trouble") == 0 || r.lines("process reports no more trouble") == 0 || r.lines("process reports") > 8 {
			t.Errorf("the log has %d and %d lines", r.lines("reports trouble"), r.lines("no more trouble"))
		}
		if la.count() != 1 || lb.count() != 0 || b.View().Trouble != "" {
			t.Errorf("%d and %d leases, and b says %q of itself", la.count(), lb.count(), b.View().Trouble)
		}
	})
}

// An application cannot contend for the lock under which a member probes its permissions.
func TestProbeLockIsReserved(t *testing.T) {
	if err := checkShards([]string{"a", string(probeLock)}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// troubledBackend has the method that Options.Trouble is by default.
type troubledBackend struct {
	Backend
	err error
}

func (b *troubledBackend) Trouble(context.Context) error { return b.err }

// TestBackendTrouble: by default, a member reports what its backend's method Trouble returns.
func TestBackendTrouble(t *testing.T) {
	b, err := memory.Open(t.Context(), memory.New(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	own, backends := errors.New("the disk is slow"), errors.New("member c does not answer")
	for _, c := range []struct {
		backend Backend
		option  func(context.Context) error
		want    error
	}{
		{&troubledBackend{b, backends}, nil, backends},
		{&troubledBackend{b, backends}, func(context.Context) error { return own }, own},
		{b, func(context.Context) error { return own }, own},
	} {
		e, err := NewElector(c.backend, &Options{Trouble: c.option})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.o.Trouble(t.Context()); !errors.Is(got, c.want) {
			t.Errorf("the member reports %v, want %v", got, c.want)
		}
	}
	if e, err := NewElector(b, nil); err != nil || e.o.Trouble != nil {
		t.Errorf("a backend without the method reports trouble (%v)", err)
	}
}
