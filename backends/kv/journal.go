package kv

import (
	"slices"
	"time"
)

// maxTold is how many names a journal remembers. A watch that is further behind
// has to read all, as one that missed so many would rather do.
const maxTold = 1024

// journal is what this process learned from the lanes of one kind: up to which
// write it has read each, and which names they told. It does no I/O. Not safe for
// concurrent use.
type journal struct {
	kind  feedKind
	keys  Keys
	begun bool // a page was read
	lanes map[string]laneSeen

	// told has keys, with the revision of the lane's record that told them last, and
	// the detail if that had one.
	told recent[string, string]
	seq  int64 // of the latest telling
	lost int64 // a watch that has read up to a telling before this one has missed some
	// floor is the revision up to which tellings may be missing: for a state read
	// at this revision or later they are not needed.
	floor Rev
}

// laneSeen is how far a lane was read.
type laneSeen struct {
	seq   int64
	rev   Rev       // of its record
	size  int       // of its record, in bytes
	since time.Time // when it was first seen like this, on this process's clock
	gone  int64     // the number of writes that a farewell told, 0 if none did
}

func (j *journal) init(keys Keys, kind feedKind) {
	j.keys, j.kind = keys, kind
	j.lanes = make(map[string]laneSeen)
	j.told.init()
}

// look reads a page of lanes, of a store that has shown revision seen. It reports
// false if lanes went back, or are gone without a farewell: then the store itself
// may have gone back.
func (j *journal) look(page []Pair, seen Rev, now time.Time) (sane bool) {
	sane = true
	whole := true // nothing was missed
	var lost Rev  // up to which revision what was missed was written
	here := make(map[string]struct{}, len(page))
	for _, p := range page {
		kind, name, ok := j.keys.laneKind(p.Key)
		if !ok || kind != j.kind {
			continue
		}
		here[name] = struct{}{}
		at, known := j.lanes[name]
		if known && at.rev == p.Rev {
			continue
		}
		l, err := decodeLane(p)
		if err != nil {
			// Nobody can say what it told. Its writer will leave it for another.
			l = lane{seq: at.seq, floor: at.seq + 1, lost: p.Rev}
		}
		if p.Rev < at.rev || l.seq < at.seq {
			sane = false
		}
		bye := j.read(l, p.Rev, at.seq)
		if l.floor > at.seq {
			whole = false
			lost = max(lost, l.lost)
		}
		if bye && !j.begun {
			// What the lane that is gone told, nobody can say.
			whole = false
			lost = max(lost, p.Rev)
		}
		at = j.lanes[name]
		j.lanes[name] = laneSeen{seq: l.seq, rev: p.Rev, size: len(p.Value), since: now, gone: at.gone}
	}
	for name, at := range j.lanes {
		if _, ok := here[name]; ok {
			continue
		}
		switch {
		case !j.begun: // see bye
		case at.gone == 0:
			sane = false
		case at.gone != at.seq:
			whole = false
			lost = seen
		}
		delete(j.lanes, name)
	}
	switch {
	case !j.begun:
		// Whoever has read the state after what was lost can go on from there.
		j.begun = true
		j.floor = max(j.floor, lost)
	case !whole || !sane:
		j.forget(max(lost, seen))
	}
	return sane
}

// read takes over what a lane tells behind its write number seq, and reports
// whether there was a farewell in it.
func (j *journal) read(l lane, rev Rev, seq int64) (bye bool) {
	for _, h := range slices.Backward(l.hints) {
		if h.seq <= seq {
			continue
		}
		if lane, last, ok := splitFarewell(h.name); ok {
			at := j.lanes[lane]
			at.gone = last
			j.lanes[lane] = at
			bye = true
			continue
		}
		key, ok := j.keys.hinted(j.kind, h.name)
		if !ok {
			continue
		}
		at, detail := rev, h.detail
		if it, ok := j.told.get(key); ok && it.rev >= rev {
			at, detail = it.rev, it.val // what is told late is older
		}
		j.seq++
		j.told.set(key, detail, at, j.seq)
	}
	for len(j.told.index) > maxTold {
		it := &j.told.items[j.told.oldest]
		j.lost, j.floor = max(j.lost, it.seq), max(j.floor, it.rev)
		j.told.remove(it.key)
	}
	return bye
}

// forget makes every watch read all, because something was missed that was
// written at revision rev at the latest.
func (j *journal) forget(rev Rev) {
	j.seq++
	j.lost, j.floor = j.seq, rev
	j.told = recent[string, string]{}
	j.told.init()
}

// since returns the keys told behind telling number seq, in their order, and those
// only that a state read at revision after may not have. ok is false if some were
// missed.
func (j *journal) since(seq int64, after Rev) (told []toldKey, ok bool) {
	if seq < j.lost {
		return nil, false
	}
	j.told.since(seq, func(it *recentItem[string, string]) {
		if it.rev > after {
			told = append(told, toldKey{it.key, it.rev, it.val})
		}
	})
	slices.Reverse(told)
	return told, true
}

// toldKey is a record that may have changed, at revision rev at the latest; with a
// detail it did change at rev, and the detail has it.
type toldKey struct {
	key    string
	rev    Rev
	detail string
}

// stale picks a lane that was not written for a while and is not one of mine. One
// that is long is not kept as long: everybody reads it at every change, and its
// hints are of no use any more.
func (j *journal) stale(now time.Time, retention time.Duration, mine func(name string) bool) (string, laneSeen, bool) {
	for name, at := range j.lanes {
		keep := retention
		if at.size > maxIdleLane {
			keep = min(keep, maxLaneAge)
		}
		if at.rev != 0 && at.gone == 0 && now.Sub(at.since) >= keep && !mine(name) {
			return name, at, true
		}
	}
	return "", laneSeen{}, false
}

// removed reports whether a lane that was written at revision rev is gone, as far as
// a page knows that has everything up to revision told.
func (j *journal) removed(name string, rev, told Rev) bool {
	_, here := j.lanes[name]
	return j.begun && rev != 0 && rev <= told && !here
}
