package sharding

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/sharding/assign"
)

// poison is a namespace in which one shard crashes every process that serves it.
type poison struct {
	*world
	shard   string
	fatal   bool
	doomed  chan *member
	options func(*Options)
}

func (p *poison) start(node, version string) *member {
	return p.member(node, func(m *member, o *Options) {
		m.version = version
		o.Shards = []string{"orders-000..199"}
		if p.options != nil {
			p.options(o)
		}
		m.handler = func(ctx context.Context, l *core.Lease) error {
			if l.Shard() == p.shard {
				p.mu.Lock()
				fatal := p.fatal
				p.mu.Unlock()
				if fatal {
					p.doomed <- m
					<-ctx.Done()
					return nil
				}
			}
			return m.hold(ctx, l)
		}
	})
}

func (p *poison) setFatal(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fatal = on
}

// aside returns the reason, in a member's view, why the shard is set aside.
func (p *poison) aside(m *member) string {
	o, _ := m.e.View().Owner(p.shard)
	return o.Aside
}

// crashOwners crashes each owner of the shard for a time, and returns the number of crashes.
func (p *poison) crashOwners(during time.Duration) (n int) {
	end := time.After(during)
	for {
		select {
		case m := <-p.doomed:
			time.Sleep(ttl / 50)
			m.crash()
			n++
		case <-end:
			return n
		}
	}
}

func newPoison(w *world, members int, options func(*Options)) *poison {
	p := &poison{world: w, shard: "orders-007", doomed: make(chan *member, 10), options: options}
	for i := range members {
		p.start(fmt.Sprintf("n%02d", i), "1")
	}
	time.Sleep(3 * ttl)
	return p
}

func (p *poison) living() *member {
	for _, m := range p.members {
		if !m.gone {
			return m
		}
	}
	p.Fatal("nobody lives")
	return nil
}

// One shard crashes every process that serves it. After it has killed three of 50 members, all
// views show it in quarantine. Every other shard always has an owner, except during a takeover.
func TestQuarantine(t *testing.T) {
	members := share.Of(t, "members", 50, 25)
	bubble(t, func(w *world) {
		p := newPoison(w, members, func(o *Options) { o.Quarantine.For = 30 * time.Second })
		var without time.Duration // the longest time that any other shard was without an owner
		since := map[string]time.Time{}
		stop := make(chan struct{})
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for {
				owners := w.owners()
				for i := range 200 {
					shard := fmt.Sprintf("orders-%03d", i)
					if owners[shard] != "" || shard == p.shard {
						delete(since, shard)
					} else if _, ok := since[shard]; !ok {
						since[shard] = time.Now()
					} else {
						without = max(without, time.Since(since[shard]))
					}
				}
				select {
				case <-stop:
					return
				case <-time.After(ttl / 50):
				}
			}
		}()
		p.setFatal(true)
		owner := w.owners()[p.shard]
		for _, m := range w.members {
			if m.node == owner {
				m.crash() // the first member that the shard kills, although it has had the shard for a long time
			}
		}
		dead := 1 + p.crashOwners(20*ttl)
		close(stop)
		<-watched
		v := p.living()
		// Other shards that all three dead members had owned cannot be distinguished from the
		// deadly shard.
		if why := p.aside(v); dead < 3 || dead > 4 || !strings.Contains(why, fmt.Sprint(dead, " of its owners died")) {
			w.Errorf("%d members died, and the shard is set aside for %q", dead, why)
		}
		if n, _ := v.e.View().Unowned(); n != 0 {
			w.Errorf("%d shards count as unowned", n)
		}
		// A takeover takes the TTL plus one call, which takes a quarter of the TTL in this test.
		if without > ttl+ttl/2 || without < ttl/2 {
			w.Errorf("another shard was without an owner for %v", without)
		}
		w.Logf("%d of %d members died; the others' shards were without an owner for %v at most", dead, members, without)
		// After the quarantine ends, the death of the first owner is enough for the next one.
		time.Sleep(40 * time.Second)
		if again := p.crashOwners(10 * ttl); again < 1 || again > 2 || p.aside(p.living()) == "" {
			w.Errorf("%d members died after the quarantine, and the shard is set aside for %q", again, p.aside(p.living()))
		}
		// A member without a version, such as the command tenure, does not end the quarantine. A
		// member with a new version gets the shard.
		p.setFatal(false)
		w.rule(control.Put, control.Rule{Kind: control.Pin, Shards: "orders-000", Node: "n01"})
		time.Sleep(5 * ttl)
		if p.aside(p.living()) == "" {
			w.Error("a tool ended the quarantine")
		}
		p.start("new", "2")
		time.Sleep(5 * ttl)
		if why := p.aside(p.living()); why != "" || w.owners()[p.shard] == "" {
			w.Errorf("with another version the shard is set aside for %q, and owned by %q", why, w.owners()[p.shard])
		}
	})
}

// An operator's rule ends a quarantine, and prevents the next one while the rule lasts.
func TestRelease(t *testing.T) {
	bubble(t, func(w *world) {
		p := newPoison(w, 16, func(o *Options) { o.Quarantine.Deaths = 2 })
		p.setFatal(true)
		for _, m := range w.members {
			if m.node == w.owners()[p.shard] {
				m.crash()
				break
			}
		}
		if dead := p.crashOwners(10 * ttl); dead != 1 || p.aside(p.living()) == "" {
			w.Fatalf("%d more died, set aside for %q", dead, p.aside(p.living()))
		}
		p.setFatal(false)
		w.rule(control.Put, control.Rule{Kind: control.Release, Shards: p.shard})
		time.Sleep(5 * ttl)
		if why := p.aside(p.living()); why != "" || w.owners()[p.shard] == "" {
			w.Errorf("after the release it is set aside for %q, and owned by %q", why, w.owners()[p.shard])
		}
		p.setFatal(true)
		for _, m := range w.members {
			if m.node == w.owners()[p.shard] {
				m.crash()
				break
			}
		}
		if dead := p.crashOwners(5 * ttl); dead < 2 || p.aside(p.living()) != "" {
			w.Errorf("%d died under the rule, and the shard is set aside for %q", dead, p.aside(p.living()))
		}
	})
}

// If every member dies at the same time, or many members die within Within, the shards are not the
// cause, and no shard is put into quarantine.
func TestNoQuarantineOfMany(t *testing.T) {
	bubble(t, func(w *world) {
		p := newPoison(w, 2, nil)
		for range 8 {
			p.living().crash()
			p.start("n", "1")
			time.Sleep(5 * ttl)
		}
		due := 0
		for _, s := range p.living().assigned().suspects {
			if len(s.Deaths) >= 3 {
				due++
			}
		}
		if due < 50 {
			w.Fatalf("%d shards have three deaths, which proves nothing", due)
		}
		v := p.living().e.View()
		held := 0
		for _, o := range v.Shards {
			if o.Aside != "" {
				held++
			}
		}
		if held > 10 {
			w.Errorf("%d shards of 200 are held back", held)
		}
	})
}

// If a plan moves shards from a member that dies before the hand-over, the member counts as the
// shards' owner. After the hand-over, it does not.
func TestDeathBeforeTheHandOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		before, record core.SessionID // of the moved shards, while the member is alive and after it is gone
		deaths         int
	}{
		{"nobody has claimed it", "a", "a", 1},
		{"the other one has claimed it", "a", "b", 1},
		{"it was handed over", "b", "b", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, _ := Quarantine{}.resolve()
			p := &planner{Assigner: assign.Balance{}, Specs: []string{"s-0..3"}, Penalty: time.Second, Quarantine: q, wall: time.Unix(1000, 0)}
			table := &assignments{}
			member := func(name string) core.Member {
				return core.Member{Session: core.SessionID(name), Node: name, MemberState: core.MemberState{Weight: 1}}
			}
			v := &core.View{Members: []core.Member{member("a")}}
			for _, s := range []string{"s-0", "s-1", "s-2", "s-3"} {
				v.Shards = append(v.Shards, core.Ownership{Shard: s, Session: "a", Token: 1})
			}
			now := time.Duration(0)
			next := func() {
				now += time.Second
				out, err := p.next(now, table, v, measured{}, nil)
				if err == nil && out.change != nil {
					var read assembly
					var logged *planChange
					for _, part := range out.change.encode(partBytes) {
						if logged, err = read.add(core.Entry{Payload: part}); err != nil {
							t.Fatal(err)
						}
					}
					table, err = table.apply(logged)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			next()
			v.Members = append(v.Members, member("b"))
			next()
			records := func(session core.SessionID) {
				for i := range v.Shards {
					if table.session(i) == "b" && v.Shards[i].Session != session {
						v.Shards[i].Session, v.Shards[i].Token = session, v.Shards[i].Token+1
					}
				}
			}
			records(c.before)
			next()
			records(c.record)
			v.Members = v.Members[1:]
			moved := map[string]bool{}
			for i, name := range table.names {
				moved[name] = table.session(i) == "b"
			}
			next()
			next()
			for _, name := range table.names {
				want, got := 1, 0
				if moved[name] {
					want = c.deaths
				}
				if s := table.suspects[name]; s != nil {
					got = len(s.Deaths)
				}
				if got != want {
					t.Errorf("%s, moved %v, has %d deaths, want %d", name, moved[name], got, want)
				}
			}
		})
	}
}

// If one more death is enough for a quarantine, the shard is not moved to balance the members.
// Otherwise, the assigned member would claim the shard after its owner's death, before the plan
// that counts that death.
func TestNoMoveNearQuarantine(t *testing.T) {
	t.Parallel()
	q, _ := Quarantine{}.resolve()
	start := time.Unix(1000, 0)
	p := &planner{Assigner: assign.Balance{}, Specs: []string{"s-0..3"}, Penalty: time.Second, Quarantine: q, wall: start}
	v := &core.View{Members: []core.Member{{Session: "a", Node: "a", MemberState: core.MemberState{Weight: 1}}}}
	out, err := p.next(0, &assignments{}, v, measured{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	table, err := (&assignments{}).apply(out.change)
	if err != nil {
		t.Fatal(err)
	}
	table.suspects = map[string]*suspicion{}
	for _, name := range table.names[:3] {
		table.suspects[name] = &suspicion{Deaths: []int64{990, 995}}
	}
	v.Members = append(v.Members, core.Member{Session: "b", Node: "b", MemberState: core.MemberState{Weight: 1}})
	if out, err = p.next(time.Second, table, v, measured{}, nil); err != nil || len(out.Moves) != 1 || out.Moves[0].Shard != 3 {
		t.Errorf("%+v, error %v, want a move of s-3 alone", out.Moves, err)
	}
	p.wall = start.Add(10 * time.Minute)
	if out, err = p.next(2*time.Second, table, v, measured{}, nil); err != nil || len(out.Moves) != 2 {
		t.Errorf("when the deaths are long ago: %+v, error %v, want two moves", out.Moves, err)
	}
}

// A shard that its owner's death brings close to quarantine is not moved, either.
func TestNoMoveOfAnOrphanNearQuarantine(t *testing.T) {
	t.Parallel()
	q, _ := Quarantine{}.resolve()
	p := &planner{Assigner: assign.Balance{}, Specs: []string{"s-0..3"}, Penalty: time.Second, Quarantine: q, wall: time.Unix(1000, 0)}
	v := &core.View{Members: []core.Member{{Session: "a", Node: "a", MemberState: core.MemberState{Weight: 1}}}}
	out, err := p.next(0, &assignments{}, v, measured{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	table, err := (&assignments{}).apply(out.change)
	if err != nil {
		t.Fatal(err)
	}
	table.suspects = map[string]*suspicion{}
	for _, name := range table.names[:3] {
		table.suspects[name] = &suspicion{Deaths: []int64{990}}
	}
	v.Members = nil
	for _, name := range []string{"b", "c"} {
		v.Members = append(v.Members, core.Member{Session: core.SessionID(name), Node: name, MemberState: core.MemberState{Weight: 1}})
	}
	for _, name := range table.names {
		v.Shards = append(v.Shards, core.Ownership{Shard: name, Session: "b", Token: 2})
	}
	if out, err = p.next(time.Second, table, v, measured{}, nil); err != nil {
		t.Fatal(err)
	}
	for i, o := range out.Plan.Owner {
		if want := int32(i / 3); o != want {
			t.Errorf("%s goes to member %d, want %d", table.names[i], o, want)
		}
	}
}

// A shard that is freed after more deaths than a quarantine needs stays free until its owner dies.
func TestFreeAfterManyDeaths(t *testing.T) {
	t.Parallel()
	q, _ := Quarantine{}.resolve()
	p := &planner{Assigner: assign.Balance{}, Specs: []string{"s-0..3"}, Penalty: time.Second, Quarantine: q, wall: time.Unix(1000, 0)}
	v := &core.View{}
	var list []death
	for i := range 5 {
		id := fmt.Sprint("n", i)
		v.Members = append(v.Members, core.Member{Session: core.SessionID(id), Node: id, MemberState: core.MemberState{Weight: 1}})
		v.Members = append(v.Members, core.Member{Session: core.SessionID(id + "b"), Node: id, MemberState: core.MemberState{Weight: 1}})
		list = append(list, death{int64(700 + 10*i), identity(&assign.Member{ID: "dead" + core.SessionID(id), Node: id})})
	}
	table := &assignments{}
	next := func(now time.Duration) *planChange {
		out, err := p.next(now, table, v, measured{}, nil)
		if err == nil && out.change != nil {
			var read assembly
			var logged *planChange
			if logged, err = read.add(core.Entry{Payload: out.change.encode(partBytes)[0]}); err == nil {
				table, err = table.apply(logged)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.change
	}
	next(0)
	table.suspects = map[string]*suspicion{"s-0": (&suspicion{Until: 999}).with(list)}
	if c := next(time.Second); c == nil || len(c.Isolation.Free) != 1 || table.suspects["s-0"].held() {
		t.Fatalf("%+v, want a shard that comes free", c)
	}
	if c := next(2 * time.Second); c != nil && len(c.Isolation.Hold) > 0 || table.suspects["s-0"].held() {
		t.Errorf("%+v, though nobody died", c)
	}
	if !q.next(table.suspects["s-0"]) {
		t.Errorf("%+v, want one death more to be enough", table.suspects["s-0"])
	}
}

// After a split or a merge, the key that kills may be in any of the resulting ranges. Each of these
// shards therefore gets the deaths.
func TestDeathsFollowTheRange(t *testing.T) {
	t.Parallel()
	base := &planChange{Number: 1, Base: true, Keys: Keyspace{Name: "k", Shards: 3}, Next: 3}
	for i := range 3 {
		base.Ranges = append(base.Ranges, numbered{i, equal(i, 3)})
	}
	base.Suspects = map[string]*suspicion{"k-0000": {Deaths: []int64{5, 6}}, "k-0001": {Deaths: []int64{7}}}
	table, err := (&assignments{}).apply(base)
	if err != nil {
		t.Fatal(err)
	}
	next, err := table.apply(&planChange{Number: 2, Splits: []assign.Split{{Shard: 0, At: []uint64{1 << 60}}}, Merges: []assign.Merge{{From: 1, To: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"k-0000": 2, "k-0001": 1, "k-0002": 1, "k-0003": 2} {
		if s := next.suspects[name]; s == nil || len(s.Deaths) != want {
			t.Errorf("%s has %+v, want %d deaths", name, s, want)
		}
	}
	if len(table.suspects) != 2 {
		t.Errorf("the table before has %d suspects", len(table.suspects))
	}
	next, err = table.apply(&planChange{Number: 2, Merges: []assign.Merge{{From: 1, To: 0}}})
	if err != nil || len(next.suspects["k-0000"].Deaths) != 2 {
		t.Errorf("%+v, error %v, want the more deaths of two", next, err)
	}
	base.Suspects["gone"] = &suspicion{Until: 9}
	if table, err = (&assignments{}).apply(base); err != nil || len(table.suspects) != 2 || len(base.Suspects) != 3 {
		t.Errorf("%+v, error %v, want no suspicion of a shard that is not in the set", table, err)
	}
}

// If all members are in a crash loop, the numbers of deaths per shard differ by one or two, which
// proves nothing about the shards. A shard stands out only if it was present at most of the deaths,
// unlike all other shards.
func TestStandsOut(t *testing.T) {
	t.Parallel()
	q, _ := Quarantine{}.resolve()
	v := &core.View{}
	for _, name := range []string{"a", "b", "c"} {
		v.Members = append(v.Members, core.Member{Session: core.SessionID(name), Node: name, MemberState: core.MemberState{Weight: 1}})
	}
	for _, c := range []struct {
		name          string
		most, without int // deaths that the shard has, and deaths that only other shards have
		node          string
		second        int // shards that also have all of its deaths
		held          bool
	}{
		{"one more than the others", 4, 0, "", 0, false},
		{"two rounds of all three members", 6, 0, "", 0, false},
		{"one more", 7, 0, "", 0, true},
		{"a round without it", 7, 3, "", 0, false},
		{"most of many", 12, 1, "", 0, true},
		{"another shard was there each time", 12, 0, "", 1, false},
		{"it is one machine", 12, 0, "a", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &planner{Assigner: assign.Balance{}, Specs: []string{"s-00..39"}, Penalty: time.Second, Quarantine: q, wall: time.Unix(1000, 0)}
			out, err := p.next(0, &assignments{}, v, measured{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			table, err := (&assignments{}).apply(out.change)
			if err != nil {
				t.Fatal(err)
			}
			var all []death
			for i := range c.most + c.without {
				node := c.node
				if node == "" {
					node = string("abc"[i%3])
				}
				all = append(all, death{at: int64(900 + i), of: identity(&assign.Member{ID: core.SessionID(fmt.Sprint("died", i)), Node: node})})
			}
			table.suspects = map[string]*suspicion{}
			for _, name := range table.names {
				table.suspects[name] = (&suspicion{}).with(all[c.most-3:])
			}
			for i := range 1 + c.second {
				table.suspects[fmt.Sprintf("s-%02d", 7+i)] = (&suspicion{}).with(all[:c.most])
			}
			if out, err = p.next(time.Second, table, v, measured{}, nil); err != nil {
				t.Fatal(err)
			}
			var held []int32
			if out.change != nil {
				held = out.change.Isolation.Hold
			}
			if c.held != (len(held) > 0) || c.held && !slices.Equal(held, []int32{7}) {
				t.Errorf("held %v, want %v of s-07", held, c.held)
			}
		})
	}
}
