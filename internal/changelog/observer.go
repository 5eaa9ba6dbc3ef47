package changelog

import (
	"container/list"
	"slices"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

// maxChanged is the number of changed keys that an observer remembers. If a watch is further
// behind, reading all records is cheaper.
const maxChanged = 1024

// observer records what this process has read from the change logs of one kind: the last write of
// each log, and the keys in the entries. An observer does no I/O, and is not safe for concurrent
// use.
type observer struct {
	kind  kind
	keys  kvkeys.Keys
	begun bool // a page was read
	logs  map[string]position

	// order contains each changed key once, sorted by number. Each key has the revision of the last
	// change log that contained the key, and that log's inline value, if any.
	order   list.List                // of changedKey
	changed map[string]*list.Element // by key
	seq     int64                    // the number of the latest changed key
	lost    int64                    // a watch that has read up to a smaller number has missed some keys
	// floor is the revision up to which changed keys may be missing. A reader whose state is at
	// this revision or later does not need the missing keys.
	floor kv.Rev
}

// position records how far a change log has been read.
type position struct {
	seq     int64
	rev     kv.Rev    // of its record
	size    int       // of its record, in bytes
	since   time.Time // when this state was first seen, by this process's clock
	removed int64     // the number of writes, if this is a tombstone, or 0
}

func (o *observer) init(keys kvkeys.Keys, k kind) {
	o.keys, o.kind = keys, k
	o.logs = make(map[string]position)
	o.changed = make(map[string]*list.Element)
}

// look applies a page of change logs from a store that has shown revision latest. If a change log
// went back to an earlier write, or is gone without a tombstone, look returns false, because the
// store may have returned to an earlier state.
func (o *observer) look(page []kv.Pair, latest kv.Rev, now time.Time) (sane bool) {
	sane = true
	whole := true   // nothing was missed
	var lost kv.Rev // the revision up to which missed entries were written
	here := make(map[string]struct{}, len(page))
	for _, p := range page {
		k, name, ok := kindOf(o.keys, p.Key)
		if !ok || k != o.kind {
			continue
		}
		here[name] = struct{}{}
		at, known := o.logs[name]
		if known && at.rev == p.Rev {
			continue
		}
		l, err := decode(p)
		if err != nil {
			// The entries of a damaged change log are unknown. The writer will replace it with
			// another one.
			l = changeLog{seq: at.seq, floor: at.seq + 1, lost: p.Rev}
		}
		if p.Rev < at.rev || l.seq < at.seq {
			sane = false
		}
		tombstones := o.read(l, p.Rev, at.seq)
		if l.floor > at.seq {
			whole = false
			lost = max(lost, l.lost)
		}
		if tombstones && !o.begun {
			// The entries of the missing change log are unknown.
			whole = false
			lost = max(lost, p.Rev)
		}
		at = o.logs[name]
		o.logs[name] = position{seq: l.seq, rev: p.Rev, size: len(p.Value), since: now, removed: at.removed}
	}
	for name, at := range o.logs {
		if _, ok := here[name]; ok {
			continue
		}
		switch {
		case !o.begun: // see tombstones
		case at.removed == 0:
			sane = false
		case at.removed != at.seq:
			whole = false
			lost = latest
		}
		delete(o.logs, name)
	}
	switch {
	case !o.begun:
		// A reader whose state is newer than the lost entries can continue.
		o.begun = true
		o.floor = max(o.floor, lost)
	case !whole || !sane:
		o.forget(max(lost, latest))
	}
	return sane
}

// read adds the entries that a change log has after write number seq, and reports whether one of
// them is a tombstone.
func (o *observer) read(l changeLog, rev kv.Rev, seq int64) (tombstones bool) {
	for _, e := range slices.Backward(l.entries) {
		if e.seq <= seq {
			continue
		}
		if name, last, ok := splitTombstone(e.name); ok {
			at := o.logs[name]
			at.removed = last
			o.logs[name] = at
			tombstones = true
			continue
		}
		key, ok := keyOf(o.keys, o.kind, e.name)
		if !ok {
			continue
		}
		o.seq++
		c := changedKey{key: key, rev: rev, inline: e.inline, seq: o.seq}
		if is, ok := o.changed[key]; ok {
			// An entry that arrives late belongs to an older write.
			if before := is.Value.(changedKey); before.rev >= rev {
				c.rev, c.inline = before.rev, before.inline
			}
			o.order.Remove(is)
		}
		o.changed[key] = o.order.PushBack(c)
	}
	for o.order.Len() > maxChanged {
		c := o.order.Remove(o.order.Front()).(changedKey)
		delete(o.changed, c.key)
		o.lost, o.floor = max(o.lost, c.seq), max(o.floor, c.rev)
	}
	return tombstones
}

// forget makes every watch read all records, because a change written at revision rev or earlier
// was missed.
func (o *observer) forget(rev kv.Rev) {
	o.seq++
	o.lost, o.floor = o.seq, rev
	o.order.Init()
	clear(o.changed)
}

// The keys are those that changed after number seq, oldest change first. Changes up to the given
// revision are omitted, because the caller's state contains them. If some keys were missed, ok is
// false.
func (o *observer) since(seq int64, after kv.Rev) (keys []changedKey, ok bool) {
	if seq < o.lost {
		return nil, false
	}
	for e := o.order.Back(); e != nil; e = e.Prev() {
		c := e.Value.(changedKey)
		if c.seq <= seq {
			break
		}
		if c.rev > after {
			keys = append(keys, c)
		}
	}
	slices.Reverse(keys)
	return keys, true
}

// The result is another process's change log that has not been written for a while. A long change
// log qualifies sooner, because all followers read it at every change, even if its entries are no
// longer useful.
func stale(logs map[string]position, now time.Time, retention time.Duration, mine func(name string) bool) (string, position, bool) {
	for name, at := range logs {
		keep := retention
		if at.size > maxIdle {
			keep = min(keep, maxAge)
		}
		if at.rev != 0 && at.removed == 0 && now.Sub(at.since) >= keep && !mine(name) {
			return name, at, true
		}
	}
	return "", position{}, false
}

// The result reports whether a change log written at revision rev is gone, according to a page that
// contains all changes up to the revision in complete.
func (o *observer) gone(name string, rev, complete kv.Rev) bool {
	_, here := o.logs[name]
	return o.begun && rev != 0 && rev <= complete && !here
}
