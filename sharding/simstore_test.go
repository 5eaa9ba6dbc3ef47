package sharding_test

import (
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// batchItems is the number of items in one call, for counting calls.
const batchItems = 1024

func (w *world) call(kind string, items int) {
	w.r.Calls[kind] += max(1, (items+batchItems-1)/batchItems)
}

// arrive applies a call in the store immediately, and sends the answer.
func (w *world) arrive(m *member, e *fsm.Effect) {
	in := fsm.Input{Call: e.Call}
	lives := w.records[e.Session] != nil
	if !lives && e.Kind != fsm.EffJoin {
		in.Err = driver.ErrSessionLost
	}
	switch e.Kind {
	case fsm.EffJoin:
		w.call("join", 1)
		in.Kind = fsm.InJoined
		w.rev++
		r := &record{e.Member, driver.Version(w.rev)}
		w.records[e.Session] = r
		w.byID[e.Session] = m
		w.changed(change{shard: none, member: &r.Member})
	case fsm.EffBeat:
		w.call("beat", 1)
		in.Kind = fsm.InBeaten
		if lives {
			w.rev++
			w.records[e.Session].version = driver.Version(w.rev)
			for _, x := range w.watchers[e.Session] {
				w.glance(x)
			}
		}
	case fsm.EffAcquire:
		w.call("acquire", len(e.Claims))
		in.Kind, in.Results = fsm.InAcquired, w.acquire(e)
	case fsm.EffTransfer:
		w.call("transfer", len(e.Transfers))
		in.Kind, in.Results = fsm.InTransferred, w.transfer(m, e)
	case fsm.EffRelease:
		w.call("release", len(e.Fences))
		in.Kind, in.Err = fsm.InReleased, nil
		w.release(e)
	case fsm.EffEvict:
		w.call("evict", len(e.Suspects))
		in.Kind, in.Evictions = fsm.InEvicted, w.evict(e)
	case fsm.EffUpdate:
		w.call("update", 1)
		in.Kind = fsm.InUpdated
		if lives {
			r := w.records[e.Session]
			r.Member.MemberState = e.State
			w.rev++
			w.changed(change{shard: none, member: &r.Member})
		}
	case fsm.EffRead:
		w.call("read", 1)
		in.Kind = fsm.InRead
	case fsm.EffClose:
		w.call("close", 1)
		w.end(e.Session)
		return
	default: // not a call
	}
	w.after(w.c.Delay, event{kind: reply, m: m, in: &in})
}

func (w *world) acquire(e *fsm.Effect) (results []driver.AcquireResult) {
	w.rev++
	for _, c := range e.Claims {
		s := w.index[c.Shard]
		o := w.owners[s]
		if o != c.Seen || o.Session != "" && w.records[o.Session] != nil {
			results = append(results, driver.AcquireResult{Err: &driver.HeldError{Owner: o}})
			continue
		}
		results = append(results, w.give(s, e.Session))
	}
	return results
}

func (w *world) transfer(m *member, e *fsm.Effect) (results []driver.AcquireResult) {
	w.rev++
	var away []int32
	for _, h := range e.Transfers {
		s := w.index[h.Fence.Shard]
		switch o := w.owners[s]; {
		case o.Session != e.Session || o.Token != h.Fence.Token:
			results = append(results, driver.AcquireResult{Err: &driver.FencedError{Current: o}})
		case w.records[h.To] == nil:
			results = append(results, driver.AcquireResult{Err: driver.ErrNoTarget})
		default:
			if to := w.byID[h.To]; !to.up {
				w.blame(s)
			}
			results = append(results, w.give(s, h.To))
			if h.To != e.Session {
				away = append(away, s)
			}
		}
	}
	if len(away) > 0 {
		w.after(4*w.c.Delay, event{kind: again, m: m, shards: away})
	}
	return results
}

func (w *world) release(e *fsm.Effect) {
	for _, f := range e.Fences {
		if s := w.index[f.Shard]; w.owners[s] == (driver.Owner{Session: f.Session, Token: f.Token}) {
			w.owners[s].Session = ""
			w.changed(change{shard: s})
		}
	}
}

func (w *world) evict(e *fsm.Effect) (results []driver.EvictResult) {
	for _, x := range e.Suspects {
		r := w.records[x.Session]
		switch {
		case r == nil:
			results = append(results, driver.EvictResult{})
		case r.version != x.Version:
			results = append(results, driver.EvictResult{Current: r.version})
		default:
			results = append(results, driver.EvictResult{Evicted: true})
			w.end(x.Session)
		}
	}
	return results
}

func (w *world) give(s int32, to core.SessionID) driver.AcquireResult {
	w.owners[s] = driver.Owner{Session: to, Token: driver.Token(w.rev)}
	w.changed(change{shard: s})
	return driver.AcquireResult{Fence: driver.Fence{Shard: w.names[s], Session: to, Token: driver.Token(w.rev)}}
}

func (w *world) end(id core.SessionID) {
	if w.records[id] != nil {
		delete(w.records, id)
		c := change{shard: none, gone: id}
		for s, o := range w.owners {
			if o.Session == id {
				c.free = append(c.free, int32(s))
			}
		}
		w.changed(c)
	}
}

func (w *world) changed(c change) {
	w.changes = append(w.changes, c)
	for _, m := range w.members {
		w.glance(m)
	}
}

// glance makes a member read the store once, one delay later.
func (w *world) glance(m *member) {
	if !m.looking {
		m.looking = true
		w.after(w.c.Delay, event{kind: look, m: m})
	}
}

func (w *world) look(m *member) {
	m.watch = m.m.AppendWatch(m.watch[:0])
	v := &driver.View{}
	for _, b := range m.watch {
		if r := w.records[b.Session]; r != nil && r.version != b.Version {
			v.Beats = append(v.Beats, driver.Beat{Session: b.Session, Version: r.version})
		}
	}
	var free []int32
	regroup := false
	if !m.full {
		m.full, v.Reset, regroup = true, true, true
		free = w.everything(v)
	} else {
		free, regroup = w.since(m.cursor, v)
	}
	m.cursor = len(w.changes)
	// The order of claims matters only if shards are free, so it is passed on only then. With a
	// hundred machines, this saves a lot of time.
	if len(free) > 0 && w.r.Plans > 0 {
		in := fsm.Input{Kind: fsm.InPrefer}
		for _, s := range free {
			if s != bossShard {
				in.Shards = append(in.Shards, w.names[s])
				in.Heirs = append(in.Heirs, w.heirs(s))
			}
		}
		w.step(m, in)
	}
	if v.Reset || len(v.Beats)+len(v.Members)+len(v.Gone)+len(v.Shards) > 0 {
		w.step(m, fsm.Input{Kind: fsm.InObserved, View: v, SentAt: fsm.Instant(w.now - int64(w.c.Delay))})
	}
	if regroup {
		w.rewatch(m)
	}
}

// everything fills in a view of all records, and returns the shards without an owner.
func (w *world) everything(v *driver.View) (free []int32) {
	for _, id := range w.ids() {
		v.Members = append(v.Members, w.records[id].Member)
	}
	v.Shards = make([]driver.ShardState, len(w.owners))
	for s, o := range w.owners {
		v.Shards[s] = driver.ShardState{Shard: w.names[s], Owner: o}
		if w.records[o.Session] == nil {
			free = append(free, int32(s))
		}
	}
	return free
}

// since fills in a view of the changes after a cursor. It returns the shards that lost their owner,
// and whether members joined or left.
func (w *world) since(cursor int, v *driver.View) (free []int32, regroup bool) {
	for _, c := range w.changes[cursor:] {
		switch {
		case c.member != nil:
			if w.records[c.member.Session] != nil {
				v.Members = append(v.Members, *c.member)
			}
			regroup = true
		case c.gone != "":
			v.Gone = append(v.Gone, c.gone)
			regroup = true
			free = append(free, c.free...)
		default:
			o := w.owners[c.shard]
			v.Shards = append(v.Shards, driver.ShardState{Shard: w.names[c.shard], Owner: o})
			if o.Session == "" {
				free = append(free, c.shard)
			}
		}
	}
	return free, regroup
}

func (w *world) ids() []core.SessionID {
	var out []core.SessionID
	for id := range w.records {
		out = append(out, id)
	}
	slices.SortFunc(out, func(a, b core.SessionID) int { return strings.Compare(string(a), string(b)) })
	return out
}

// rewatch updates the list of members whose heartbeats a member watches.
func (w *world) rewatch(m *member) {
	for _, id := range m.watching {
		w.watchers[id] = slices.DeleteFunc(w.watchers[id], func(x *member) bool { return x == m })
		if len(w.watchers[id]) == 0 {
			delete(w.watchers, id)
		}
	}
	m.watching = m.watching[:0]
	if !m.up {
		return
	}
	m.watch = m.m.AppendWatch(m.watch[:0])
	for _, b := range m.watch {
		w.watchers[b.Session] = append(w.watchers[b.Session], m)
		m.watching = append(m.watching, b.Session)
	}
}

func (w *world) after(d time.Duration, e event) {
	e.at = w.now + int64(d)
	w.push(e)
}

// push and pop implement a binary heap, ordered by instant and then by creation.
func (w *world) push(e event) {
	w.seq++
	e.seq = w.seq
	w.events = append(w.events, e)
	q := w.events
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !less(&q[i], &q[up]) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (w *world) pop() event {
	q := w.events
	top := q[0]
	n := len(q) - 1
	q[0] = q[n]
	q[n] = event{}
	q = q[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && less(&q[c+1], &q[c]) {
			c++
		}
		if !less(&q[c], &q[i]) {
			break
		}
		q[i], q[c] = q[c], q[i]
		i = c
	}
	w.events = q
	return top
}

func less(a, b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }
