package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/internal/seam"
)

// world is a namespace with members that send no heartbeats and stay alive for their TTL.
type world struct {
	*testing.T
	store *memory.Store
	b     core.Backend
	n     int
}

func newWorld(t *testing.T, nodes ...string) *world {
	t.Helper()
	w := &world{T: t, store: memory.New()}
	w.b = w.open()
	for _, n := range nodes {
		w.join(n, core.MemberState{})
	}
	return w
}

func (w *world) open() core.Backend {
	w.Helper()
	b, err := memory.Open(context.Background(), w.store, "test", nil)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { b.Close() })
	return b
}

func (w *world) join(node string, st core.MemberState) driver.Session {
	w.Helper()
	w.n++
	s, err := w.b.Join(context.Background(), core.Member{Session: core.SessionID(fmt.Sprintf("s%d", w.n)), Node: node,
		TTL: 24 * time.Hour, MemberState: st})
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func (w *world) leave(s driver.Session) {
	w.Helper()
	if err := s.Close(context.Background()); err != nil {
		w.Fatal(err)
	}
}

func writerOn(b core.Backend) *Writer {
	return &Writer{Backend: b, Options: &core.Options{TTL: 5 * time.Second}, Timeout: 10 * time.Second}
}

// ask calls Ask, and fails the test if the answer differs from want.
func (w *world) ask(want bool, q Question) *Answer {
	w.Helper()
	a, err := writerOn(w.b).Ask(context.Background(), q)
	if err != nil {
		w.Fatalf("%+v: %v", q, err)
	}
	if a.May != want {
		w.Fatalf("%+v: got %v, want %v: %+v", q, a.May, want, a)
	}
	return a
}

func (w *world) done(node string, want bool) {
	w.Helper()
	if had, err := writerOn(w.b).Done(context.Background(), node, "test"); had != want || err != nil {
		w.Fatalf("done %s: got %v, %v", node, had, err)
	}
}

func (w *world) commit(ops ...core.Op) {
	w.Helper()
	err := core.RunSingleton(context.Background(), w.b, control.Shard, func(_ context.Context, l *core.Lease) error {
		_, err := l.Commit(l.Context(), ops...)
		return err
	}, &core.Options{Node: "other", LockDir: "none"})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) rules() []control.Rule {
	w.Helper()
	rules, err := control.Read(context.Background(), w.b)
	if err != nil {
		w.Fatal(err)
	}
	return rules
}

// TestTwoAtOnce: many callers ask at the same time, on several backends of one store. They get
// exactly the available places.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		away := 1 + round%2
		w := newWorld(t, "a", "b", "c", "d", "e", "f")
		var backends []core.Backend
		for range 3 {
			backends = append(backends, w.open())
		}
		var mu sync.Mutex
		var granted []string
		var all sync.WaitGroup
		for i, node := range []string{"a", "b", "c", "d", "e", "f"} {
			all.Go(func() {
				a, err := writerOn(backends[i%len(backends)]).Ask(context.Background(), Question{Node: node, Away: away})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Error(err)
				case a.May:
					granted = append(granted, node)
				case a.AwayTotal < away || a.Reason == "":
					t.Errorf("node %s was refused: %+v", node, a)
				}
			})
		}
		all.Wait()
		if len(granted) != away || len(w.rules()) != away {
			t.Fatalf("round %d: got places for %v, and the rules %v, want %d", round, granted, w.rules(), away)
		}
	}
}

// TestLastPlace: one place is taken. Of two callers that ask at the same time, one gets the other
// place.
func TestLastPlace(t *testing.T) {
	t.Parallel()
	for range 20 {
		w := newWorld(t, "a", "b", "c", "d")
		w.ask(true, Question{Node: "a", Away: 2})
		var all sync.WaitGroup
		may, backends := make([]bool, 2), []core.Backend{w.open(), w.open()}
		for i, node := range []string{"b", "c"} {
			all.Go(func() {
				a, err := writerOn(backends[i]).Ask(context.Background(), Question{Node: node, Away: 2})
				if err != nil {
					t.Error(err)
					return
				}
				may[i] = a.May
			})
		}
		all.Wait()
		if may[0] == may[1] || len(w.rules()) != 2 {
			t.Fatalf("got %v, and the rules %v, want one place more", may, w.rules())
		}
	}
}

// TestPlaceEnds: a place expires at its end time. It also ends when Done is called, and when
// another session of the node has joined. It does not end when the node leaves.
func TestPlaceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "b", "c")
		a := w.join("a", core.MemberState{})
		first := w.ask(true, Question{Node: "a", For: time.Minute})
		if left := time.Until(first.Until); left < time.Minute || left > time.Minute+time.Second {
			t.Errorf("the place lasts %v", left)
		}
		no := w.ask(false, Question{Node: "b"})
		if len(no.Away) != 1 || no.Away[0].Node != "a" || !no.Away[0].Until.Equal(first.Until) || !strings.Contains(no.Reason, "node a: it holds a place until") {
			t.Errorf("got %+v", no)
		}
		w.leave(a)
		w.ask(false, Question{Node: "b"})
		time.Sleep(55 * time.Second)
		w.ask(false, Question{Node: "b"})
		time.Sleep(7 * time.Second)
		w.ask(true, Question{Node: "b", For: time.Hour})
		w.ask(false, Question{Node: "c"})
		w.done("b", true)
		w.done("b", false)
		w.ask(true, Question{Node: "c", For: time.Hour})
		w.ask(false, Question{Node: "b"})
		w.join("c", core.MemberState{})
		w.ask(true, Question{Node: "b", For: time.Hour})
		if rules := w.rules(); len(rules) != 1 || rules[0].Node != "b" {
			t.Errorf("got the rules %+v, want those that ended to be removed", rules)
		}
	})
}

// TestAskAgain: a node keeps its place while other nodes are also away, even if the node itself is
// gone. Asking again may extend the place, but never shortens it. A node that asks again with a
// smaller budget is refused, but keeps its existing place.
func TestAskAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "b", "c", "d")
		s := w.join("a", core.MemberState{})
		w.ask(true, Question{Node: "b", Away: 2})
		one := w.ask(true, Question{Node: "a", Away: 2, For: time.Minute})
		time.Sleep(30 * time.Second)
		two := w.ask(true, Question{Node: "a", Away: 2, For: time.Minute})
		if more := two.Until.Sub(one.Until); more < 29*time.Second || more > 31*time.Second {
			t.Errorf("asked 30 s later, it lasts %v longer", more)
		}
		if a := w.ask(true, Question{Node: "a", Away: 3, For: time.Second}); !a.Until.Equal(two.Until) || a.Budget != 2 {
			t.Errorf("got %+v, want the place until %v", a, two.Until)
		}
		if a := w.ask(false, Question{Node: "a", Away: 1}); !a.Until.Equal(two.Until) {
			t.Errorf("got %+v", a)
		}
		before := w.rules()
		if a := w.ask(true, Question{Node: "a", Away: 2, For: time.Minute, Keep: 30 * time.Second}); !a.Until.Equal(two.Until) ||
			fmt.Sprint(w.rules()) != fmt.Sprint(before) {
			t.Errorf("a place that lasts long enough was written again: %+v", a)
		}
		w.leave(s)
		w.ask(true, Question{Node: "a", Away: 2, For: time.Minute})
		w.join("a", core.MemberState{})
		w.ask(true, Question{Node: "c", Away: 2})
		w.ask(false, Question{Node: "a", Away: 2})
	})
}

// TestBudgets: the budget is the smallest one of the nodes that hold places and the node that asks.
func TestBudgets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c", "d", "e")
	w.ask(true, Question{Node: "a", Away: 1})
	if a := w.ask(false, Question{Node: "b", Away: 3}); a.Budget != 1 {
		t.Errorf("got %+v, want the budget of a", a)
	}
	w.done("a", true)
	w.ask(true, Question{Node: "a", Away: 3})
	w.ask(true, Question{Node: "b", Away: 3})
	w.ask(false, Question{Node: "c", Away: 2})
	w.ask(true, Question{Node: "c", Away: 3})
	w.ask(false, Question{Node: "d", Away: 3})
}

func TestAway(t *testing.T) {
	t.Parallel()
	drained := func(w *world) {
		op, err := control.Put(&control.Rule{Kind: control.Drain, Node: "b"})
		if err != nil {
			w.Fatal(err)
		}
		w.commit(op)
	}
	for name, c := range map[string]struct {
		prepare func(w *world)
		q       Question
		want    bool
		why     string
	}{
		"nobody":             {want: true},
		"draining":           {prepare: func(w *world) { w.join("x", core.MemberState{Draining: true}) }, why: "node x: it drains"},
		"drained by a rule":  {prepare: drained, why: "node b: a rule drains it"},
		"itself is drained":  {prepare: drained, q: Question{Node: "b"}, want: true},
		"not eligible":       {prepare: func(w *world) { w.join("x", core.MemberState{Meta: map[string]string{mark.IneligibleKey: "ill"}}) }, why: `not eligible: "ill"`},
		"silent":             {q: Question{Silent: []core.SessionID{"s2"}}, why: "node b: it makes no heartbeat"},
		"one of two members": {prepare: func(w *world) { w.join("b", core.MemberState{Draining: true}) }, want: true},
		"missing":            {q: Question{Members: 4}, why: "1 of the members that should run are missing"},
		"none is missing":    {q: Question{Members: 3}, want: true},
		"a writer of rules":  {prepare: func(w *world) { w.join("tool.host", core.MemberState{Draining: true}) }, want: true},
		"room for one more":  {prepare: drained, q: Question{Away: 2}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a", "b", "c")
			if c.prepare != nil {
				c.prepare(w)
			}
			if c.q.Node == "" {
				c.q.Node = "a"
			}
			if a := w.ask(c.want, c.q); !strings.Contains(a.Reason, c.why) {
				t.Errorf("got %+v, want %q", a, c.why)
			}
		})
	}
}

// TestNobodyLeft: with any budget, a node may not be stopped if no other node is up and eligible.
func TestNobodyLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	if a := w.ask(false, Question{Node: "a", Away: 5}); !strings.Contains(a.Reason, "no other node is up") {
		t.Errorf("got %+v", a)
	}
	w.join("b", core.MemberState{Meta: map[string]string{mark.IneligibleKey: "ill"}})
	w.ask(false, Question{Node: "a", Away: 5})
	w.join("c", core.MemberState{})
	w.ask(true, Question{Node: "c", Away: 5})
	if a := w.ask(false, Question{Node: "a", Away: 5}); a.Up != 0 {
		t.Errorf("got %+v, want c, which holds a place, not to count", a)
	}
}

// TestMissingCountsPlaces: a node that is gone is not counted as missing if it has a place.
func TestMissingCountsPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "b", "c", "d")
	s := w.join("a", core.MemberState{})
	w.ask(true, Question{Node: "a", Away: 2, Members: 4})
	w.leave(s)
	if a := w.ask(true, Question{Node: "b", Away: 2, Members: 4}); a.Missing != 0 {
		t.Errorf("got %+v", a)
	}
}

// TestUnknownNode: an unknown node gets an error that names it, and no place.
func TestUnknownNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	for _, node := range []string{"c", "tool.host"} {
		if node == "tool.host" {
			w.join(node, core.MemberState{Draining: true})
		}
		if a, err := writerOn(w.b).Ask(t.Context(), Question{Node: node}); !errors.Is(err, ErrNoNode) ||
			!strings.Contains(err.Error(), fmt.Sprintf("%q", node)) {
			t.Errorf("node %s: got %+v, %v", node, a, err)
		}
		if _, err := writerOn(w.b).Done(t.Context(), node, "test"); !errors.Is(err, ErrNoNode) {
			t.Errorf("done of node %s: got %v", node, err)
		}
	}
	if rules := w.rules(); len(rules) != 0 {
		t.Errorf("got the rules %+v", rules)
	}
}

func TestBadQuestion(t *testing.T) {
	t.Parallel()
	for _, q := range []Question{
		{}, {Node: "a/b"}, {Node: "a\x1b[31m"}, {Node: strings.Repeat("a", 200)}, {Node: "../x"}, {Node: "a", Away: -1},
		{Node: "a", Away: MaxAway + 1}, {Node: "a", Members: -1}, {Node: "a", Members: MaxAway + 1}, {Node: "a", For: -time.Second},
		{Node: "a", For: time.Millisecond}, {Node: "a", For: MaxFor + 1},
	} {
		if a, err := new(Writer).Ask(t.Context(), q); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%+v: got %+v, %v", q, a, err)
		}
	}
	if _, err := new(Writer).Done(t.Context(), "a/b", ""); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	if a := w.ask(true, Question{Node: "a", Look: true}); !a.Until.IsZero() || len(w.rules()) != 0 {
		t.Errorf("got %+v, and the rules %+v", a, w.rules())
	}
	w.ask(true, Question{Node: "b"})
	w.ask(false, Question{Node: "a", Look: true})
}

// TestRecordsOfOthers: a place whose record cannot be decoded causes an error, and Done ends the
// place. Rules of unknown kinds are ignored, and stay in the store.
func TestRecordsOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	w.commit(core.Put("rule/later/x", []byte(`{"kind":"later"}`)))
	w.ask(true, Question{Node: "a"})
	w.done("a", true)
	w.commit(core.Put("rule/stop/c", []byte(`{"kind":"stop","node":"c","later":true}`)))
	if a, err := writerOn(w.b).Ask(t.Context(), Question{Node: "a"}); !errors.Is(err, core.ErrDamaged) || !strings.Contains(err.Error(), `"rule/stop/c"`) {
		t.Errorf("got %+v, %v", a, err)
	}
	w.done("c", true)
	w.ask(true, Question{Node: "a"})
	if item, err := w.b.Get(t.Context(), control.Shard, "rule/later/x"); item == nil || err != nil {
		t.Errorf("the rule of another version is gone: %v", err)
	}
}

// TestTooManyPlaces: if there are more places than Ask can read, the answer is an error rather than
// a yes.
func TestTooManyPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "zz", "zzz")
	var ops []core.Op
	for i := range control.MaxRules + 1 {
		op, err := control.Put(&control.Rule{Kind: control.Stop, Node: fmt.Sprintf("n%04d", i), Away: 1, Expires: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	for part := range slices.Chunk(ops, 200) {
		w.commit(part...)
	}
	if a, err := writerOn(w.b).Ask(t.Context(), Question{Node: "zz", Away: MaxAway}); err == nil {
		t.Errorf("got %+v", a)
	}
	w.done("n0000", true)
	a := w.ask(false, Question{Node: "zz", Away: MaxAway})
	if a.AwayTotal != control.MaxRules || len(a.Away) != maxGone || len(a.Reason) > 2000 {
		t.Errorf("got %d of %d, and a reason of %d bytes", len(a.Away), a.AwayTotal, len(a.Reason))
	}
}

// TestFenced: a Writer whose lease has passed to another member writes nothing.
func TestFenced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	other := writerOn(w.open())
	taken := false
	slow := writerOn(&stalling{Backend: w.b, stall: func(prefix string) {
		if !strings.HasPrefix(prefix, "rule/stop/") {
			return
		}
		v, err := w.b.Observe(t.Context(), driver.ObserveQuery{})
		if err != nil {
			t.Error(err)
			return
		}
		for _, s := range v.Shards {
			if s.Shard != control.Shard || s.Owner.Session == "" || taken {
				continue
			}
			taken = true
			for _, m := range v.Members { // as others evict a member that was stopped for its TTL
				if m.Session == s.Owner.Session {
					w.evict(m.Session)
				}
			}
			if a, err := other.Ask(t.Context(), Question{Node: "b"}); err != nil || !a.May {
				t.Errorf("got %+v, %v", a, err)
			}
		}
	}})
	a, err := slow.Ask(t.Context(), Question{Node: "a"})
	if !taken || err == nil && a.May {
		t.Errorf("got %+v, %v, although the lease passed on: %v", a, err, taken)
	}
	if rules := w.rules(); len(rules) != 1 || rules[0].Node != "b" {
		t.Errorf("got the rules %+v, want the place of b", rules)
	}
}

// stalling calls stall after the answer to each List of rules.
type stalling struct {
	core.Backend
	stall func(prefix string)
}

func (s *stalling) List(ctx context.Context, shard core.ShardID, prefix string, limit, largest int) ([]core.Item, error) {
	items, err := s.Backend.List(ctx, shard, prefix, limit, largest)
	s.stall(prefix)
	return items, err
}

func (w *world) evict(id core.SessionID) {
	page, err := w.b.Observe(context.Background(), driver.ObserveQuery{Beats: []driver.Beat{{Session: id}}})
	if err != nil || len(page.Beats) != 1 {
		w.Errorf("got %+v, %v", page, err)
		return
	}
	s := w.join("evictor", core.MemberState{Draining: true})
	defer w.leave(s)
	if r, err := s.Evict(context.Background(), page.Beats); err != nil || !r[0].Evicted {
		w.Errorf("got %+v, %v", r, err)
	}
}

// TestStaleView: a server shows the namespace from before a place was written, with the node's
// former session. No other node gets the place.
func TestStaleView(t *testing.T) {
	t.Parallel()
	for name, behind := range map[string]int{"for some reads": 6, "for good": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "b", "c")
			former := w.join("a", core.MemberState{})
			old, err := w.b.Observe(t.Context(), driver.ObserveQuery{})
			if err != nil {
				t.Fatal(err)
			}
			w.leave(former)
			w.join("a", core.MemberState{})
			w.ask(true, Question{Node: "a"})
			s := &stale{Backend: w.b, old: old}
			s.left.Store(int64(behind))
			a, err := writerOn(s).Ask(t.Context(), Question{Node: "b"})
			if behind > 100 {
				if err == nil {
					t.Errorf("got %+v from a server that stays behind", a)
				}
			} else if err != nil || a.May || s.left.Load() > 0 {
				t.Errorf("got %+v, %v, and %d reads left", a, err, s.left.Load())
			}
			if rules := w.rules(); len(rules) != 1 || rules[0].Node != "a" {
				t.Errorf("got the rules %+v", rules)
			}
		})
	}
}

// stale returns an old view for some reads.
type stale struct {
	core.Backend
	old  *driver.View
	left atomic.Int64
}

func (s *stale) Observe(ctx context.Context, q driver.ObserveQuery) (*driver.View, error) {
	if q.Since == "" && s.left.Add(-1) >= 0 {
		return s.old, nil
	}
	return s.Backend.Observe(ctx, q)
}

// TestStopIsARule: a Stop is a rule that is listed and logged with its author.
func TestStopIsARule(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	w.ask(true, Question{Node: "a", Writer: "me@host", Reason: "a kernel"})
	rules := w.rules()
	if len(rules) != 1 || rules[0].Kind != control.Stop || rules[0].Node != "a" || rules[0].Writer != "me@host" ||
		rules[0].Author != "me@host" || rules[0].Reason != "a kernel" || rules[0].Away != 1 || !slices.Equal(rules[0].Sessions, []core.SessionID{"s1"}) {
		t.Errorf("got %+v", rules)
	}
	w.done("a", true)
	page, err := w.b.ReadLog(t.Context(), control.Shard, 0, 10)
	if err != nil || len(page.Entries) != 2 {
		t.Fatalf("got %+v, %v", page, err)
	}
	for i, e := range page.Entries {
		var c Change
		if err := json.Unmarshal(e.Payload, &c); err != nil || c.Rule.Node != "a" || c.Removed != (i == 1) || c.By == "" {
			t.Errorf("entry %d: got %+v, %v", i, c, err)
		}
	}
}

// Shards that are set aside need no owner, and do not count as unowned.
func TestAsideIsNotUnowned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		s := w.join("c", core.MemberState{})
		if _, err := s.Acquire(t.Context(), []driver.Claim{{Shard: "ended"}, {Shard: "missing"}}); err != nil {
			t.Fatal(err)
		}
		w.leave(s)
		q := Question{Node: "a", Look: true}
		for want, aside := range map[int]func(string) seam.Aside{2: nil, 1: func(shard string) seam.Aside {
			if shard == "ended" {
				return seam.Aside{Why: "it has ended"}
			}
			return seam.Aside{}
		}} {
			q.Aside = aside
			if a, err := writerOn(w.b).Ask(t.Context(), q); err != nil || a.Unowned != want {
				t.Errorf("got %+v, %v, want %d unowned", a, err, want)
			}
		}
	})
}

// A Writer releases its lease, because the only other member may have no handler for the shard.
func TestWriterReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		for range 5 {
			err := writerOn(w.b).Write(t.Context(), func(context.Context, *driver.View) (*Decision, error) { return nil, nil })
			if err != nil {
				t.Fatal(err)
			}
			v, err := w.b.Observe(t.Context(), driver.ObserveQuery{})
			if err != nil || len(v.Shards) != 1 || v.Shards[0].Owner.Session != "" {
				t.Fatalf("the rules' shard is %+v, %v", v, err)
			}
		}
	})
}

// Several rules are written in one commit, with an entry for each. The removal of old rules in the
// same commit does not affect them.
func TestSeveralRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		write := func(expires time.Time) {
			t.Helper()
			err := writerOn(w.b).Write(t.Context(), func(context.Context, *driver.View) (*Decision, error) {
				d := &Decision{}
				for i := range 15 {
					r := control.Rule{Kind: control.Split, Hash: fmt.Sprintf("0x%016x", i+1), Expires: expires}
					op, err := control.Put(&r)
					if err != nil {
						return nil, err
					}
					d.Ops, d.Changes = append(d.Ops, op), append(d.Changes, Change{Rule: r})
				}
				return d, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		write(time.Now().Add(time.Minute))
		before, err := w.b.ReadLog(t.Context(), control.Shard, 0, 100)
		if err != nil || len(before.Entries) != 15 {
			t.Fatalf("%d entries, %v", len(before.Entries), err)
		}
		time.Sleep(time.Hour) // they have ended, and are written again
		write(time.Time{})
		rules, err := control.Read(t.Context(), w.b)
		if err != nil || len(rules) != 15 || !rules[14].Expires.IsZero() || rules[14].Hash != "0x000000000000000f" {
			t.Errorf("got %+v, %v", rules, err)
		}
	})
}
