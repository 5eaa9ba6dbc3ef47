package fsm

import (
	"encoding/binary"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
)

// clone returns an independent copy of the machine. The copy shares NewSession, so the caller
// replaces NewSession if it has state.
func (m *Machine) clone() *Machine {
	c := *m
	c.out = nil
	c.beats, c.reads = slices.Clone(m.beats), slices.Clone(m.reads)
	c.peers, c.alive, c.watched = nil, make(map[driver.SessionID]*peer, len(m.alive)), nil
	for _, p := range m.peers {
		q := *p
		c.peers = append(c.peers, &q)
		c.alive[q.member.Session] = &q
	}
	for _, p := range m.watched {
		if q := c.alive[p.member.Session]; q != nil {
			c.watched = append(c.watched, q)
		}
	}
	c.buried = maps.Clone(m.buried)
	c.shards = slices.Clone(m.shards)
	c.index = make(map[driver.ShardID]int32, len(m.index))
	for i := range c.shards {
		if o := c.shards[i].own; o != nil {
			p := *o
			c.shards[i].own = &p
		}
		if c.shards[i].name != "" {
			c.index[c.shards[i].name] = int32(i)
		}
	}
	c.unused = slices.Clone(m.unused)
	c.gifts = make(map[int32]*gift, len(m.gifts))
	for i, g := range m.gifts {
		h := *g
		c.gifts[i] = &h
	}
	c.queue = slices.Clone(m.queue)
	for k := range c.calls {
		c.calls[k].shards = slices.Clone(m.calls[k].shards)
		c.calls[k].tokens = slices.Clone(m.calls[k].tokens)
		c.calls[k].suspects = slices.Clone(m.calls[k].suspects)
		c.batch[k] = slices.Clone(m.batch[k])
		c.kept[k] = slices.Clone(m.kept[k])
	}
	return &c
}

// A digest writes states in a canonical form, which is equal for states that behave alike. Instants
// count from now. Only the order of revisions matters, so each revision is replaced by its rank
// among the revisions of the state. Each state is written twice: the first pass collects the
// revisions.
type digest struct {
	buf    []byte
	revs   []int64
	second bool
	now    Instant
}

func (d *digest) ranked() {
	slices.Sort(d.revs)
	d.revs = slices.Compact(d.revs)
	d.buf, d.second = d.buf[:0], true
}

func (d *digest) rev(r int64) {
	if r <= 0 {
		d.int(r - 1)
		return
	}
	if !d.second {
		d.revs = append(d.revs, r)
		return
	}
	k, _ := slices.BinarySearch(d.revs, r)
	d.int(int64(k))
}

func (d *digest) int(v int64) { d.buf = binary.AppendVarint(d.buf, v) }

func (d *digest) bool(bs ...bool) {
	x := int64(0)
	for i, b := range bs {
		if b {
			x |= 1 << i
		}
	}
	d.int(x)
}

func (d *digest) str(s string) {
	d.int(int64(len(s)))
	d.buf = append(d.buf, s...)
}

func (d *digest) instant(t Instant) {
	if t == Never || t < 0 {
		d.int(int64(t))
		return
	}
	d.int(int64(t - d.now))
}

func (d *digest) owner(o driver.Owner) {
	d.str(string(o.Session))
	d.rev(int64(o.Token))
}

// fingerprint writes the machine's state. It omits the configuration, values that follow from the
// rest (alive, index, out, wants, slot), and the numbers of calls, which only identify the calls.
// It also omits the error that is only reported, and values that are not read in the current phase.
func (m *Machine) fingerprint(d *digest) {
	d.int(int64(m.rng))
	d.int(int64(m.phase))
	d.str(string(m.sess))
	d.str(string(m.former))
	if m.phase == joining || m.phase == left {
		d.bool(m.joinCall != 0, m.closing != 0)
		d.instant(m.joinSent)
	}
	if m.phase == idle || m.phase == waiting {
		d.instant(max(m.joinAt, m.now))
	}
	d.int(int64(m.joins))
	if m.phase == live {
		d.instant(m.until)
		d.bool(m.lapsed)
		if m.lapsed {
			d.instant(m.lapsedAt)
			for _, b := range m.reads {
				d.instant(b.sentAt)
				d.bool(b.other)
				d.bool(b.long)
			}
			d.instant(max(m.readAt, m.now))
			d.instant(m.heardAt)
			d.instant(m.answered)
			d.int(int64(m.deaf))
			if m.deaf > 0 {
				d.instant(m.deafAt)
			}
			d.instant(max(m.quietTo, m.now))
		}
		for _, b := range m.beats {
			d.instant(b.sentAt)
			d.bool(b.other)
		}
		d.instant(m.beatAt)
		d.instant(m.beatSent)
		d.instant(m.okSentAt)
		d.int(int64(m.slow))
		d.instant(m.resyncAt)
		d.int(int64(m.cfg.Member.Update))
		d.int(int64(m.stored))
		if m.mayUpdate() {
			d.instant(max(m.updateAt, m.now))
			d.int(int64(m.updates))
		}
	}
	d.bool(m.viewed)
	for _, p := range m.peers {
		d.str(string(p.member.Session))
		d.rev(int64(p.version))
		d.int(int64(p.member.Update))
		d.instant(p.changed)
		d.instant(p.seenAt)
		d.bool(p.watched, p.silent, p.evicting, p.beat, p.listed, p.barred)
		if !p.barred && m.cfg.Failback > 0 {
			d.instant(p.since)
		}
		if len(m.gifts) > 0 {
			d.instant(p.first)
		}
		d.str(p.lock)
		if p.silent {
			d.instant(p.evictAt)
		}
	}
	for _, p := range m.watched {
		d.str(string(p.member.Session))
	}
	d.instant(Instant(m.minTTL) + m.now)
	d.bool(m.wideTo != 0)
	d.instant(max(m.wideTo, m.now))
	for i := range m.shards {
		s := &m.shards[i]
		d.str(string(s.name))
		d.owner(s.owner)
		d.bool(s.burnt)
		d.instant(s.due)
		d.instant(max(s.notBefore, m.now))
		d.int(int64(s.tries)<<16 | int64(s.returns)<<8 | int64(s.flight))
		d.bool(s.want, s.waiting, s.own != nil)
		d.str(string(s.heirs[0]))
		d.str(string(s.heirs[1]))
		d.str(string(s.releaser))
		if o := s.own; o != nil {
			d.int(int64(o.lease))
			d.bool(o.yield, o.chosen)
			d.int(int64(o.cause)<<8 | int64(o.why))
			d.str(string(o.fence.Session))
			d.rev(int64(o.fence.Token))
			d.instant(o.grantedAt)
			d.instant(o.endedAt)
			d.instant(o.drainBy)
			d.str(string(o.to))
			d.str(string(o.sentTo))
			d.rev(int64(o.headToken))
			d.int(int64(o.head.Number))
		}
		if g := m.gifts[int32(i)]; g != nil {
			d.instant(g.at)
			d.int(int64(g.n))
		}
	}
	for _, i := range m.unused {
		d.int(int64(i))
	}
	d.rev(int64(m.forgot))
	d.str(m.cfg.Ineligible)
	if m.phase == live {
		d.instant(max(m.yieldAt, m.now))
	}
	for _, i := range m.queue {
		d.int(int64(i))
	}
	for k := range m.calls {
		c := &m.calls[k]
		d.bool(c.id != 0)
		d.int(int64(c.failed))
		if c.id != 0 || k == int(enter) && m.joinCall != 0 {
			d.instant(max(c.until, m.now))
		}
		if c.id != 0 {
			for j, i := range c.shards {
				d.int(int64(i))
				if j < len(c.tokens) {
					d.rev(int64(c.tokens[j]))
				}
			}
			for _, x := range c.suspects {
				d.str(string(x.Session))
				d.rev(int64(x.Version))
			}
		}
		for _, i := range m.batch[k] {
			d.int(int64(i))
		}
		for _, i := range m.kept[k] {
			d.int(int64(i))
		}
		d.int(-1)
	}
}

// TestCloneCoversEveryField fails when a field of the machine's state is added, renamed or removed.
// clone and fingerprint then need the same change.
func TestCloneCoversEveryField(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		of   any
		want string
	}{
		{Machine{}, "cfg rng now out last phase sess former joinCall joinSent joinAt joins closing until lapsed lapsedAt reads readAt heardAt answered beats beatAt beatSent beatErr deaf deafAt quietTo okSentAt slow stored updateAt updateErr updates viewed resyncAt peers alive watched minTTL wideTo buried shards unused forgot index queue wants calls batch kept yieldAt gifts"},
		{shard{}, "name owner due notBefore own heirs releaser slot tries returns flight want waiting burnt"},
		{own{}, "lease cause fence grantedAt endedAt drainBy to sentTo chosen yield why head headToken"},
		{peer{}, "member hash version changed seenAt watched silent evictAt evicting beat lock listed barred since first"},
		{call{}, "id until failed shards tokens suspects number"},
		{beat{}, "call sentAt other long"},
		{gift{}, "at n"},
	} {
		typ := reflect.TypeOf(x.of)
		var names []string
		for i := range typ.NumField() {
			names = append(names, typ.Field(i).Name)
		}
		if got := strings.Join(names, " "); got != x.want {
			t.Errorf("the fields of %s are\n%s\nwant\n%s\ncover the difference in clone and fingerprint, then list it here", typ.Name(), got, x.want)
		}
	}
}

// TestCloneIsIndependent clones machines in the middle of a simulation, lets the copies continue,
// and checks that the originals are unchanged.
func TestCloneIsIndependent(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 20; seed++ {
		w := newWorld(seed, nil)
		w.run(int64(seed) * 1e9)
		for _, q := range w.procs {
			m := q.m
			before, copy1 := m.clone(), m.clone()
			var d1, d2 digest
			d1.now, d2.now = m.now, m.now
			m.fingerprint(&d1)
			copy1.fingerprint(&d2)
			if string(d1.buf) != string(d2.buf) {
				t.Fatalf("seed %d: the clone of m%d has another fingerprint", seed, q.idx)
			}
			now := m.now
			for range 200 {
				at := copy1.WakeAt()
				if at == Never {
					break
				}
				now = max(now, at)
				copy1.Step(now, Input{Kind: InWake})
			}
			copy1.Step(now, Input{Kind: InObserved, SentAt: now, View: &driver.View{Reset: true}})
			copy1.Step(now, Input{Kind: InWant, Shard: "another"})
			copy1.Step(now, Input{Kind: InLeave})
			if !equalMachines(m, before) {
				t.Fatalf("seed %d: stepping a clone of m%d changed the original", seed, q.idx)
			}
		}
	}
}

func equalMachines(a, b *Machine) bool {
	x, y := *a, *b
	x.cfg.NewSession, y.cfg.NewSession = nil, nil
	x.out, y.out = nil, nil
	for _, m := range []*Machine{&x, &y} { // nil and empty are the same
		m.beats = append([]beat{}, m.beats...)
		m.peers = append([]*peer{}, m.peers...)
		m.watched = append([]*peer{}, m.watched...)
		m.shards = append([]shard{}, m.shards...)
		m.unused = append([]int32{}, m.unused...)
		m.queue = append(queue{}, m.queue...)
		for k := range m.calls {
			m.calls[k].shards = append([]int32{}, m.calls[k].shards...)
			m.calls[k].tokens = append([]driver.Token{}, m.calls[k].tokens...)
			m.calls[k].suspects = append([]driver.Suspect{}, m.calls[k].suspects...)
			m.batch[k] = append([]int32{}, m.batch[k]...)
			m.kept[k] = append([]int32{}, m.kept[k]...)
		}
	}
	return reflect.DeepEqual(x, y)
}
