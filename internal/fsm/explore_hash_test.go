package fsm

import (
	"errors"
	"hash/maphash"

	"github.com/tenure-go/tenure/core/driver"
)

// hash returns a hash of the entire state in canonical form. States with the same hash are assumed
// to be equal. With 64 bits and a million states, the probability that two different states have
// the same hash is one in 30 million.
func (c *cosmos) hash(d *digest, seed maphash.Seed) uint64 {
	d.revs, d.second, d.now = d.revs[:0], false, c.now
	c.fingerprint(d)
	d.ranked()
	c.fingerprint(d)
	return maphash.Bytes(seed, d.buf)
}

func (c *cosmos) fingerprint(d *digest) {
	s := c.store
	sh := &s.shards[0]
	d.owner(sh.owner)
	d.owner(sh.from)
	d.rev(sh.rev)
	d.rev(int64(sh.freed))
	d.rev(s.rev)
	for i := range s.members {
		m := &s.members[i]
		d.str(string(m.Session))
		d.rev(int64(m.version))
		d.rev(m.rev)
		d.instant(Instant(m.beatAt))
	}
	for _, l := range s.labels {
		d.str(l.node)
		d.str(string(l.session))
		d.rev(l.rev)
	}
	for _, x := range s.gone {
		d.str(string(x.session))
		d.rev(x.rev)
	}
	d.int(int64(len(s.ids)))
	for _, p := range c.procs {
		d.bool(p.dead, p.paused, p.late, p.told[0], p.want[0], p.runs[0].held, p.runs[0].active)
		d.int(int64(p.ids))
		if p.dead {
			continue
		}
		p.m.fingerprint(d)
		d.rev(p.cursor)
		d.instant(p.asked)
		d.instant(p.proven)
		d.str(p.barred)
		d.int(int64(p.runs[0].cause))
		d.rev(int64(p.runs[0].fence.Token))
		for i := range p.calls {
			d.int(int64(p.calls[i].kind))
			d.instant(p.calls[i].sentAt.Add(p.calls[i].timeout))
		}
		if p.view != nil {
			d.rev(p.view.cursor)
			d.view(p.view.in.View)
			d.instant(p.view.in.SentAt)
		}
	}
	for _, f := range c.flight {
		d.flying(f, c.procs[f.pkt.proc])
	}
	d.int(int64(c.budget.losses | c.budget.delays<<4 | c.budget.pauses<<8 | c.budget.crashes<<16 | c.budget.toggles<<24 | c.budget.judgements<<28))
}

func (d *digest) view(v *driver.View) {
	d.bool(v.Reset)
	for i := range v.Members {
		d.str(string(v.Members[i].Session))
	}
	for _, id := range v.Gone {
		d.str(string(id))
	}
	for _, b := range v.Beats {
		d.str(string(b.Session))
		d.rev(int64(b.Version))
	}
	for _, s := range v.Shards {
		d.owner(s.Owner)
	}
}

// flying writes a request as its kind and the outstanding call that it belongs to, if any. A reply
// to a call that has ended is ignored.
func (d *digest) flying(f flying, p *explored) {
	place := -1
	for i := range p.calls {
		if p.calls[i].id == f.pkt.eff.Call {
			place = i
		}
	}
	e := &f.pkt.eff
	d.int(int64(f.pkt.proc))
	d.int(int64(f.pkt.kind))
	d.int(int64(place))
	d.str(string(e.Session))
	d.rev(f.pkt.label)
	for _, x := range e.Claims {
		d.owner(x.Seen)
	}
	for _, x := range e.Transfers {
		d.rev(int64(x.Fence.Token))
		d.str(string(x.To))
	}
	for _, x := range e.Fences {
		d.rev(int64(x.Token))
	}
	for _, x := range e.Suspects {
		d.str(string(x.Session))
		d.rev(int64(x.Version))
	}
	d.bool(f.rep != nil)
	if f.rep == nil {
		return
	}
	in := &f.rep.in
	if in.Err != nil {
		d.str(in.Err.Error())
	}
	for i := range in.Results {
		if r := &in.Results[i]; r.Err == nil {
			d.str(string(r.Fence.Session))
			d.rev(int64(r.Fence.Token))
		} else if owner, ok := refusedBy(r.Err); ok {
			d.owner(owner)
		} else {
			d.str(r.Err.Error())
		}
	}
	for _, r := range in.Evictions {
		d.bool(r.Evicted)
		d.rev(int64(r.Current))
	}
}

func refusedBy(err error) (driver.Owner, bool) {
	if e, ok := errors.AsType[*driver.HeldError](err); ok {
		return e.Owner, true
	}
	if e, ok := errors.AsType[*driver.FencedError](err); ok {
		return e.Current, true
	}
	return driver.Owner{}, false
}
