package sharding

import (
	"context"
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
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/sharding/assign"
	"github.com/tenure-go/tenure/tenuretest"
)

// held returns how often plans put each shard into quarantine. It only works while no base has
// trimmed the log.
func held(t testing.TB, b core.Backend) map[string]int {
	t.Helper()
	out, table, parts := map[string]int{}, &assignments{}, assembly{}
	for after := core.Seq(0); ; {
		page, err := b.ReadLog(context.Background(), assigner, after, pageEntries)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Entries) == 0 {
			return out
		}
		for _, e := range page.Entries {
			after = e.Seq
			c, err := parts.add(e)
			if err != nil {
				t.Fatal(err)
			}
			if c == nil {
				continue
			}
			if table, err = table.apply(c); err != nil {
				t.Fatal(err)
			}
			for _, i := range c.Isolation.Hold {
				out[table.names[i]]++
			}
		}
	}
}

// Members are cut off from the store, or paused, for longer than their TTL, and then continue in
// the same process. No shard is ever put into quarantine, and each shard has an owner at the end.
func TestNoQuarantineWithoutADeath(t *testing.T) {
	t.Parallel()
	seeds := share.Of(t, "seeds", 20, 1)
	for _, faults := range []tenuretest.Faults{tenuretest.Cut, tenuretest.Pause} {
		for _, length := range []time.Duration{10 * ttl, 20 * ttl, 60 * ttl} {
			for _, shards := range []int{4, 16, 200} {
				if testing.Short() && length != 20*ttl && shards != 4 {
					continue
				}
				t.Run(fmt.Sprint(faults, length, shards), func(t *testing.T) {
					t.Parallel()
					o := &tenuretest.Options{Faults: faults, Length: length, Seeds: seeds, TTL: ttl}
					tenuretest.Run(t, o, func(w *tenuretest.World) { calm(t, w, shards) })
				})
			}
		}
	}
}

func calm(t *testing.T, w *tenuretest.World, shards int) {
	var mu sync.Mutex
	serves := map[string]bool{}
	w.Start(3, func(ctx context.Context, m *tenuretest.Member) error {
		e, err := core.NewElector(m.Backend(), m.Options())
		if err != nil {
			return err
		}
		s, err := NewManager(m.Backend(), e, func(ctx context.Context, l *core.Lease) error {
			mu.Lock()
			serves[l.Shard()] = true
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			delete(serves, l.Shard())
			mu.Unlock()
			return nil
		}, &Options{Shards: []string{fmt.Sprintf("s-000..%03d", shards-1)}, Interval: interval, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		run, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(run) }()
		_ = s.Run(ctx)
		stop()
		<-ended
		return nil
	})
	w.Play()
	time.Sleep(10 * ttl)
	if n := held(t, w.Backend()); len(n) > 0 {
		w.Errorf("in quarantine were %v, though no process ended", n)
	}
	w.Look(func() {
		if len(serves) != shards {
			w.Errorf("%d of %d shards are served", len(serves), shards)
		}
	})
	w.Stop()
}

// three is a namespace of three members, which are restarted after they are killed.
type three struct {
	*poison
	name string // of all shards
}

func newThree(w *world, shards int) *three {
	p := &poison{world: w, shard: "s-002", doomed: make(chan *member, 10)}
	x := &three{p, fmt.Sprintf("s-000..%03d", shards-1)}
	p.options = func(o *Options) { o.Shards = []string{x.name} }
	for i := range 3 {
		p.start(fmt.Sprint("n", i), "1")
	}
	time.Sleep(3 * ttl)
	return x
}

func (x *three) kill(m *member) {
	m.crash()
	x.members = slices.DeleteFunc(x.members, func(y *member) bool { return y == m })
	time.Sleep(ttl / 2)
	x.start(m.node, "1")
}

func (x *three) held() map[string]int {
	b, err := memory.Open(context.Background(), x.store, "test", nil)
	if err != nil {
		x.Fatal(err)
	}
	defer b.Close()
	return held(x, b)
}

// If three members are killed one after another, each of them twice, no shard is put into
// quarantine.
func TestNoQuarantineOfRollingKills(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{4, 16, 200} {
		for seed := range share.Of(t, "seeds", 20, 1) {
			t.Run(fmt.Sprint(shards, "/", seed), func(t *testing.T) {
				bubble(t, func(w *world) {
					x := newThree(w, shards)
					for range 2 {
						for _, m := range slices.Clone(x.members) {
							x.kill(m)
							time.Sleep(time.Duration(4+seed%5) * ttl)
						}
					}
					if n := x.held(); len(n) > 0 {
						w.Errorf("in quarantine were %v", n)
					}
					died := 0
					for _, s := range x.living().assigned().suspects {
						died = max(died, len(s.Deaths))
					}
					if died < 2 {
						w.Errorf("a shard has %d deaths at most, which proves nothing", died)
					}
				})
			})
		}
	}
}

// In a namespace of three members, one shard kills its owners. It is put into quarantine before the
// 33rd death. No other shard is put into quarantine, even while owners of the deadly shard continue
// to die.
func TestQuarantineOfThree(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{4, 16, 200} {
		for seed := range share.Of(t, "seeds", 20, 1) {
			t.Run(fmt.Sprint(shards, "/", seed), func(t *testing.T) {
				bubble(t, func(w *world) {
					x := newThree(w, shards)
					x.setFatal(true)
					for _, m := range slices.Clone(x.members) {
						if m.node == w.owners()[x.shard] {
							x.kill(m) // the first owner, although it has had the shard for a long time
						}
					}
					died := 1
					for end := time.Now().Add(4 * time.Minute); time.Now().Before(end) && len(x.held()) == 0; {
						select {
						case m := <-x.doomed:
							time.Sleep(ttl / 50)
							if m.e.Lease(x.shard) == nil {
								continue // the shard moved while another member was killed
							}
							x.kill(m)
							died++
						case <-time.After(ttl):
						}
					}
					time.Sleep(20 * ttl)
					if n := x.held(); !maps.Equal(n, map[string]int{x.shard: 1}) || died > 32 {
						w.Errorf("in quarantine were %v after %d deaths, want %s once", n, died, x.shard)
					}
					w.Logf("%d deaths", died)
				})
			})
		}
	}
}

type stage struct {
	testing.TB
	p       *planner
	table   *assignments
	members []core.Member
	records map[string]core.SessionID
	now     time.Duration
	start   time.Time
}

func session(process, n int) core.SessionID {
	return core.SessionID(fmt.Sprintf("%016x%016x", process, n))
}

func newStage(t testing.TB, members, shards int) *stage {
	q, _ := Quarantine{}.resolve()
	s := &stage{TB: t, table: &assignments{}, records: map[string]core.SessionID{}, start: time.Unix(1_800_000_000, 0)}
	s.p = &planner{Assigner: assign.Balance{}, Specs: []string{fmt.Sprintf("s-00..%02d", shards-1)}, Penalty: time.Second, Quarantine: q}
	for i := range members {
		s.join(i, 1)
	}
	s.pass(3)
	return s
}

func (s *stage) join(process, n int) {
	s.members = append(s.members, core.Member{Session: session(process, n), Node: fmt.Sprintf("n%02d", process), TTL: 2 * time.Second,
		MemberState: core.MemberState{Weight: 1}})
}

// pass makes a plan each second, and every owner claims its shards.
func (s *stage) pass(seconds int) (last *planChange) {
	s.Helper()
	for range seconds {
		last = s.plan()
		for i, name := range s.table.names {
			if to := s.table.session(i); to != "" {
				s.records[name] = to
			}
		}
	}
	return last
}

func (s *stage) plan() *planChange {
	s.Helper()
	s.now += time.Second
	s.p.wall = s.start.Add(s.now)
	v := &core.View{Members: slices.Clone(s.members)}
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		v.Shards = append(v.Shards, core.Ownership{Shard: name, Session: s.records[name], Token: 1})
	}
	out, err := s.p.next(s.now, s.table, v, measured{}, nil)
	if err == nil && out.change != nil {
		var read assembly
		var logged *planChange
		if logged, err = read.add(core.Entry{Payload: out.change.encode(partBytes)[0]}); err == nil {
			s.table, err = s.table.apply(logged)
		}
	}
	if err != nil {
		s.Fatal(err)
	}
	return out.change
}

// lose ends the session of a shard's owner, and returns its process.
func (s *stage) lose(shard string) (process int) {
	i, _ := indexOf(s.table, shard)
	id := s.table.session(i)
	s.members = slices.DeleteFunc(s.members, func(m core.Member) bool { return m.Session == id })
	if _, err := fmt.Sscanf(string(id[:16]), "%x", &process); err != nil {
		s.Fatalf("the owner of %s is %q: %v", shard, id, err)
	}
	return process
}

func (s *stage) deaths(shard string) int {
	if x := s.table.suspects[shard]; x != nil {
		return len(x.Deaths)
	}
	return 0
}

// A process that is a member again did not die. If it returns within the TTL, its supposed death
// has no effect. If it returns later, the resulting quarantine ends.
func TestDeathIsTakenBack(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20, 20)
	const shard = "s-07"
	first := s.lose(shard)
	s.pass(5)
	s.lose(shard)
	s.pass(5)
	third := s.lose(shard)
	s.pass(1)
	i, _ := indexOf(s.table, shard)
	if s.deaths(shard) != 3 || s.table.suspects[shard].held() || s.table.owner[i] != assign.None {
		t.Errorf("just after the third death: %d deaths, %+v, owner %d", s.deaths(shard), s.table.suspects[shard], s.table.owner[i])
	}
	s.join(third, 2)
	s.pass(2)
	if s.deaths(shard) != 2 || s.table.owner[i] == assign.None {
		t.Errorf("when the process is a member again: %d deaths, owner %d", s.deaths(shard), s.table.owner[i])
	}
	s.lose(shard)
	s.pass(5)
	if !s.table.suspects[shard].held() {
		t.Fatalf("after three deaths: %+v", s.table.suspects[shard])
	}
	s.join(first, 2)
	s.pass(2)
	if x := s.table.suspects[shard]; x.held() || s.table.owner[i] == assign.None || len(x.Deaths) != 1 {
		t.Errorf("when one of the three is a member again: %+v, owner %d", x, s.table.owner[i])
	}
}

// If a session got a shard from a plan but never had the shard's lease, the shard did not cause the
// session's death. This happens if the reply to a join is lost.
func TestDeathWithoutALease(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2, 4)
	s.join(7, 1)
	s.plan()
	planned := ""
	for i, name := range s.table.names {
		if s.table.session(i) == session(7, 1) {
			planned = name
		}
	}
	if planned == "" {
		t.Fatal("the member is planned no shard")
	}
	s.lose(planned)
	s.pass(5)
	if n := s.deaths(planned); n != 0 {
		t.Errorf("%d deaths", n)
	}
}

// The assigner's successor counts the death of the assigner, although other members already have
// the dead assigner's shards.
func TestDeathOfTheAssigner(t *testing.T) {
	bubble(t, func(w *world) {
		for i := range 3 {
			w.member(fmt.Sprint("n", i))
		}
		w.shares(3*ttl, map[string]int{"n0": 10, "n1": 10, "n2": 10})
		at, _ := w.members[0].e.View().Owner(assigner)
		var rest *member
		for _, m := range w.members {
			if m.node == at.Node {
				m.crash()
			} else {
				rest = m
			}
		}
		time.Sleep(3 * ttl)
		if n := len(rest.assigned().suspects); n != 10 {
			w.Errorf("the owner of %d shards died, want 10", n)
		}
	})
}

// If an assigner's clock was a day ahead, the quarantines and deaths that it recorded last no
// longer than others.
func TestClockAhead(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20, 20)
	ahead := s.p.wall.Add(24 * time.Hour).Unix()
	s.table.suspects = map[string]*suspicion{
		"s-07": {Deaths: []int64{ahead - 20, ahead - 10, ahead}, Until: ahead + 600},
		"s-08": {Deaths: []int64{ahead - 10, ahead}},
	}
	s.pass(2)
	if !s.table.suspects["s-07"].held() || s.deaths("s-08") != 2 {
		t.Errorf("%+v, %d deaths", s.table.suspects["s-07"], s.deaths("s-08"))
	}
	s.pass(310)
	if n := s.deaths("s-08"); n != 0 {
		t.Errorf("%d deaths after the window", n)
	}
	s.pass(300)
	if x := s.table.suspects["s-07"]; x.held() {
		t.Errorf("held after its time: %+v", x)
	}
}

// If there are few shards, at least half of them are always served. If shards in quarantine and
// shards due for it together exceed the limit, all of them are freed.
func TestBoundOfQuarantine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ held, due, want int }{{0, 2, 2}, {1, 1, 2}, {0, 3, 0}, {1, 2, 0}, {2, 1, 0}} {
		s := newStage(t, 20, 4)
		at := s.p.wall.Unix()
		s.table.suspects = map[string]*suspicion{}
		for i := range c.held + c.due {
			var list []death
			for k := range 3 {
				list = append(list, death{at - 20, identity(&assign.Member{ID: session(100+10*i+k, 1), Node: fmt.Sprint(i, k)})})
			}
			x := (&suspicion{}).with(list)
			if i < c.held {
				x.Until = at + 100
			}
			s.table.suspects[s.table.names[i]] = x
		}
		s.plan()
		n := 0
		for _, x := range s.table.suspects {
			if x.held() {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%d of 4 held and %d due: %d are held, want %d", c.held, c.due, n, c.want)
		}
	}
}

// The beginning and the end of a quarantine are logged at Warn. The test sets slog.Default, so no
// other test runs at the same time.
func TestQuarantineIsLogged(t *testing.T) {
	var log lines
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	bubbleAlone(t, func(w *world) {
		p := newPoison(w, 16, func(o *Options) { o.Quarantine.Deaths, o.Quarantine.For = 2, 30*time.Second })
		p.setFatal(true)
		for _, m := range w.members {
			if m.node == w.owners()[p.shard] {
				m.crash()
				break
			}
		}
		p.crashOwners(10 * ttl)
		p.setFatal(false)
		time.Sleep(time.Minute)
		for _, want := range []string{"tenure: sharding: shard in quarantine", "tenure: sharding: shard out of quarantine"} {
			if n, line := log.of(want, p.shard); n != 1 || !strings.Contains(line, "level=WARN") {
				w.Errorf("%d lines %q: %s", n, want, line)
			}
		}
	})
}

// Shards that all died together are balanced, because they are not the cause.
func TestBalanceAfterDeathsOfAll(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, 4)
	s.table.suspects = map[string]*suspicion{}
	for _, name := range s.table.names {
		s.table.suspects[name] = &suspicion{Deaths: []int64{s.p.wall.Unix() - 2, s.p.wall.Unix() - 1}}
	}
	s.join(1, 1)
	s.plan()
	owners := map[core.SessionID]int{}
	for i := range s.table.names {
		owners[s.table.session(i)]++
	}
	if owners[session(1, 1)] != 2 {
		t.Errorf("shared %v", owners)
	}
}
