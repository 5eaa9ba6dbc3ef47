package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/mark"
)

type health struct {
	mu    sync.Mutex
	err   error
	hangs chan struct{} // blocks until closed, even if the context ended
	asked int
}

func (h *health) ask(context.Context) error {
	h.mu.Lock()
	h.asked++
	err, hangs := h.err, h.hangs
	h.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	return err
}

func (h *health) set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func (h *health) options(o *Options) { o.Eligible = h.ask }

// owner returns the node that owns a shard, as a member sees it.
func (m *member) owner(shard string) string {
	o, _ := m.View().Owner(shard)
	return o.Node
}

// A holder that is not eligible hands over its shards to an eligible member and names the reason.
// It claims no shard. While no member is eligible, it keeps its shards.
func TestIneligibleHolderHandsOver(t *testing.T) {
	bubble(t, func(w *world) {
		var log strings.Builder // called by one goroutine
		var ha, hb, hc health
		a := w.member("a", ha.options, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		var la, lb leases
		w.must(a.Contend(la.hold, "s"))
		l := la.await(w, 1)
		b := w.member("b", hb.options)
		w.must(b.Contend(lb.hold, "s", "t"))
		w.eventually("b owns t", func() bool { return b.owner("t") == "b" })
		w.eventually("both see each other", func() bool { return len(a.View().Members) == 2 && len(b.View().Members) == 2 })

		hb.set(errors.New("b is behind"))
		w.eventually("b is not eligible", func() bool { return b.View().Ineligible == "b is behind" })
		ha.set(errors.New("the database\nis away"))
		w.eventually("a is not eligible", func() bool { return a.View().Ineligible == "the database is away" })
		time.Sleep(10 * ttl)
		synctest.Wait()
		if l.Err() != nil || la.count() != 1 || b.owner("t") != "b" {
			t.Errorf("nobody is eligible: the lease of a is %v, after %d grants, and t is %q's", l.Err(), la.count(), b.owner("t"))
		}
		hb.set(nil)
		w.eventually("b owns s", func() bool { return b.owner("s") == "b" })
		who, ok := b.View().Member(a.View().Session)
		if !ok || who.Ineligible() != "the database is away" {
			t.Errorf("b says of a: %+v", who)
		}
		stopped := slices.ContainsFunc(a.View().Moves, func(m Event) bool {
			return m.Kind == HandlerStopping && errors.Is(m.Err, ErrIneligible) && strings.Contains(m.Err.Error(), "the database is away")
		})
		if !stopped || !slices.Contains(a.said("revoke s"), "revoke s: not eligible") {
			t.Errorf("a says %+v, %q", a.View().Moves, a.said(""))
		}
		if got := a.said("session not eligible"); len(got) != 1 {
			t.Errorf("hooks say %q", got)
		}

		hb.set(errors.New("b is behind again"))
		hc.set(errors.New("old version")) // before c is asked for the first time
		c := w.member("c", hc.options)
		var lc leases
		w.must(c.Contend(lc.hold, "s", "u"))
		time.Sleep(10 * ttl)
		synctest.Wait()
		if o := c.owner("u"); o != "" || lc.count() != 0 {
			t.Errorf("c, not eligible, has %d leases, and u is %q's", lc.count(), o)
		}
		hc.set(nil)
		w.eventually("c owns s and u", func() bool { return c.owner("s") == "c" && c.owner("u") == "c" })
		ha.set(nil)
		w.eventually("a is eligible", func() bool { return a.View().Ineligible == "" })
		w.must(c.end())
		w.eventually("a owns s", func() bool { return a.owner("s") == "a" })
		w.must(a.end())
		for _, want := range []string{`msg="tenure: member not eligible" session=`, `error="the database is away"`, `msg="tenure: member eligible"`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %s", want)
			}
		}
	})
}

// A shard that no member takes goes back to its holder, and is offered at growing intervals.
func TestNobodyTakesIt(t *testing.T) {
	bubble(t, func(w *world) {
		var ha health
		a := w.member("a", ha.options, func(o *Options) { o.BackoffMax = 4 * ttl })
		var la, other leases
		w.must(a.Contend(la.hold, "s"))
		la.await(w, 1)
		b := w.member("b")
		w.must(b.Contend(other.hold, "t"))
		w.eventually("both see each other", func() bool { return len(a.View().Members) == 2 && len(b.View().Members) == 2 })
		ha.set(errors.New("ill"))
		begun := time.Now()
		la.await(w, 2)
		if took := time.Since(begun); took > 2*ttl {
			t.Errorf("nobody had s for %v, want half a TTL, and a heartbeat to notice", took)
		}
		time.Sleep(time.Until(begun.Add(60 * ttl)))
		if n := la.count(); n < 4 || n > 6 { // after 4, 12, 28, 60 TTL
			t.Errorf("%d leases in 60 TTL with a BackoffMax of 4 TTL, want the wait to double", n)
		}
	})
}

// If Options.Eligible hangs, the member is not eligible, and no heartbeat is delayed.
func TestEligibleHangs(t *testing.T) {
	bubble(t, func(w *world) {
		h := health{hangs: make(chan struct{})}
		a := w.member("a", h.options)
		var la, lb leases
		w.must(a.Contend(la.hold, "s"))
		time.Sleep(5 * ttl)
		synctest.Wait()
		want := fmt.Sprintf("no answer within %v", ttl/3)
		if v := a.View(); v.Ineligible != want || !v.Trusted || la.count() != 0 {
			t.Errorf("while the function hangs: %q, trusted %v, %d leases; want %q", v.Ineligible, v.Trusted, la.count(), want)
		}
		close(h.hangs)
		h.mu.Lock()
		h.hangs = nil
		h.mu.Unlock()
		la.await(w, 1)
		b := w.member("b")
		w.must(b.Contend(lb.hold, "s"))
		w.eventually("both see each other", func() bool { return len(a.View().Members) == 2 && len(b.View().Members) == 2 })

		var beats atomic.Int64
		a.tap.onBeat(func() error { beats.Add(1); return nil })
		hangs := make(chan struct{})
		h.mu.Lock()
		h.hangs, h.asked = hangs, 0
		h.mu.Unlock()
		w.eventually("b owns s", func() bool { return a.owner("s") == "b" })
		before := beats.Load()
		time.Sleep(30 * ttl)
		synctest.Wait()
		h.mu.Lock()
		asked := h.asked
		h.mu.Unlock()
		if got := beats.Load() - before; got < 80 || asked != 1 || len(a.said("session trust lapsed"))+len(a.said("peer")) > 1 {
			t.Errorf("%d heartbeats in 30 TTL, %d calls under way, and %q", got, asked, a.said("session"))
		}
		err := a.end()
		if err == nil || !strings.Contains(err.Error(), "Options.Eligible or Options.Trouble did not return") {
			t.Errorf("Run ended with %v", err)
		}
		close(hangs)
	})
}

// A member with a higher priority gets the shards of a member with a lower priority once, after
// Options.Failback and not before.
func TestFailback(t *testing.T) {
	bubble(t, func(w *world) {
		const wait = 5 * ttl
		failback := func(o *Options) { o.Failback = wait }
		low := w.member("low", failback)
		var ll, lh leases
		w.must(low.Contend(ll.hold, "s"))
		l := ll.await(w, 1)
		var ill health
		high := w.member("high", failback, ill.options, func(o *Options) { o.Priority = 1 })
		w.must(high.Contend(lh.hold, "s"))
		w.eventually("they see each other", func() bool { return len(low.View().Members) == 2 })
		time.Sleep(wait / 2)
		ill.set(errors.New("ill"))
		time.Sleep(wait / 2)
		ill.set(nil)
		w.eventually("high is eligible", func() bool { return high.View().Ineligible == "" && high.View().Trusted })
		begun := time.Now()
		lh.await(w, 1)
		if took := time.Since(begun); took < wait-ttl || took > wait+ttl {
			t.Errorf("high has s %v after it was eligible, want %v", took, wait)
		}
		if !errors.Is(l.Err(), ErrReleased) || !slices.Contains(low.said("revoke"), "revoke s: failback") {
			t.Errorf("the lease of low ended with %v: %q", l.Err(), low.said("revoke"))
		}
		time.Sleep(10 * wait)
		synctest.Wait()
		if ll.count() != 1 || lh.count() != 1 {
			t.Errorf("low was granted s %d times and high %d times, want once each", ll.count(), lh.count())
		}
	})
}

// A reason that changes constantly causes few writes. Update does not wait for the write of a
// reason.
func TestReasonsAreFewWrites(t *testing.T) {
	bubble(t, func(w *world) {
		var updates atomic.Int64
		n := 0
		a := w.newMember("a", func(o *Options) {
			o.Eligible = func(context.Context) error {
				n++
				return fmt.Errorf("%d entries behind", n)
			}
		})
		a.tap.onUpdate(func(send func() error) error { updates.Add(1); return send() })
		a.run()
		var h leases
		w.must(a.Contend(h.hold, "s"))
		w.eventually("it is published", func() bool { return a.View().Ineligible == "1 entries behind" })
		const resyncs = 4
		time.Sleep(resyncs * 30 * time.Second)
		synctest.Wait()
		if got := updates.Load(); got > resyncs+1 {
			t.Errorf("%d updates in %d times Resync", got, resyncs)
		}
		w.must(a.Update(w.Context(), func(st *MemberState) { st.Meta = map[string]string{"k": "v"} }))
		if got := a.told("a"); got.Meta["k"] != "v" || got.Ineligible() == "" {
			t.Errorf("the member says %+v", got)
		}
		w.must(a.Update(w.Context(), func(st *MemberState) {
			if _, has := st.Meta[mark.IneligibleKey]; has {
				t.Error("Update shows what is Tenure's own")
			}
			st.Weight = 3
		}))
	})
}

func TestReason(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", maxReason)
	for text, want := range map[string]string{
		"late":          "late",
		"a\nb\x00c":     "a b c",
		"":              "no reason given",
		"\n":            "no reason given",
		"bad \xff byte": "bad ? byte",
	} {
		if got := reason(errors.New(text)); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if got := reason(errors.New(long)); len(got) > maxReason || !utf8.ValidString(got) || !strings.HasSuffix(got, "ä...") {
		t.Errorf("a long reason became %q", got)
	}
	if got := reason(nil); got != "" {
		t.Errorf("no error became %q", got)
	}
}

// The application's metadata must leave room for a reason. Otherwise, the options are refused
// before anything is written.
func TestRoomForTheReason(t *testing.T) {
	bubble(t, func(w *world) {
		full := map[string]string{}
		for i := range driver.MaxMetaEntries {
			full[fmt.Sprint(i)] = ""
		}
		large := map[string]string{"k": strings.Repeat("x", driver.MaxMetaBytes-100)}
		var h health
		for _, meta := range []map[string]string{full, large} {
			o := &Options{Node: "a", Meta: meta}
			w.must(o.Validate(Limits{}))
			h.options(o)
			if err := o.Validate(Limits{}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "Options.Eligible") {
				t.Errorf("with %d entries: %v", len(meta), err)
			}
			a := w.member("a", h.options)
			err := a.Update(w.Context(), func(st *MemberState) { st.Meta = maps.Clone(meta) })
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("Update with %d entries: %v", len(meta), err)
			}
			w.must(a.end())
		}
	})
}
