package bucket

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// These constants limit the history from which watches can resume.
const (
	maxHistory      = 1 << 14
	maxHistoryBytes = 16 << 20
)

// reserve is the number of bytes above maxRecords that only heartbeats may use.
const reserve = 4 << 20

// state is what the log says up to one number. Values are never changed in place.
type state struct {
	number  int64 // of the last entry; 0: the log is empty
	nonce   nonce // of that entry
	id      nonce // of the first entry
	rev     kv.Rev
	records map[string]kv.Pair
	keys    []string // sorted
	bytes   int      // size of all records
	history []kv.Change
	kept    int    // bytes of the history
	floor   kv.Rev // changes up to this revision are not in the history
}

func newState() *state { return &state{records: make(map[string]kv.Pair)} }

func (c *checkpoint) state() *state {
	s := &state{number: c.number, nonce: c.nonce, id: c.id, rev: c.rev, floor: c.rev,
		records: make(map[string]kv.Pair, len(c.pairs)), keys: make([]string, len(c.pairs))}
	for i, p := range c.pairs {
		s.keys[i], s.records[p.Key] = p.Key, p
		s.bytes += size(p.Key, p.Value)
	}
	return s
}

func (s *state) checkpoint() *checkpoint {
	c := &checkpoint{id: s.id, nonce: s.nonce, number: s.number, rev: s.rev, pairs: make([]kv.Pair, len(s.keys))}
	for i, key := range s.keys {
		c.pairs[i] = s.records[key]
	}
	return c
}

// apply applies the next entry. An entry with another predecessor was written by a process that did
// not know this log, such as a process that ran while the bucket was restored. It counts as empty.
func (s *state) apply(e *entry) error {
	if e.number != s.number+1 {
		return fmt.Errorf("tenure: object %d of the log follows object %d", e.number, s.number)
	}
	genuine := e.prev == s.nonce
	if genuine && e.rev != s.rev {
		return fmt.Errorf("tenure: object %d of the log: %w: it begins at revision %d instead of %d", e.number,
			driver.ErrDamaged, e.rev, s.rev)
	}
	if s.number++; s.number == 1 {
		s.id = e.nonce
	}
	s.nonce = e.nonce
	if !genuine {
		return nil
	}
	for _, ops := range e.txns {
		s.rev++
		for _, op := range ops {
			s.put(op)
		}
	}
	if len(s.history) > maxHistory || s.kept > maxHistoryBytes {
		s.forget()
	}
	if s.bytes > maxRecords+reserve {
		return fmt.Errorf("tenure: %w: the namespace has more than %d bytes", driver.ErrTooLarge, maxRecords)
	}
	return nil
}

func (s *state) put(op kv.Op) {
	old, had := s.records[op.Key]
	if op.Delete && !had {
		return
	}
	c := kv.Change{Key: op.Key, Value: op.Value, Rev: s.rev, Deleted: op.Delete}
	if had {
		c.Key = old.Key
		s.bytes -= size(old.Key, old.Value)
	}
	at, _ := slices.BinarySearch(s.keys, op.Key)
	switch {
	case op.Delete:
		delete(s.records, op.Key)
		s.keys = slices.Delete(s.keys, at, at+1)
	default:
		s.records[c.Key] = kv.Pair{Key: c.Key, Value: op.Value, Rev: s.rev}
		s.bytes += size(c.Key, op.Value)
		if !had {
			s.keys = slices.Insert(s.keys, at, c.Key)
		}
	}
	s.history = append(s.history, c)
	s.kept += len(c.Key) + len(c.Value)
}

// forget drops the older half of the history, up to the end of a revision.
func (s *state) forget() {
	n := (len(s.history) + 1) / 2
	for n < len(s.history) && s.history[n].Rev == s.history[n-1].Rev {
		n++
	}
	s.floor = s.history[n-1].Rev
	for _, c := range s.history[:n] {
		s.kept -= len(c.Key) + len(c.Value)
	}
	s.history = slices.Delete(s.history, 0, n)
}

// point returns the last object.
func (s *state) point() point { return point{s.number, s.nonce, s.rev} }

// since returns the changes after a revision, up to another one, to keys with one of the prefixes.
func (s *state) since(after, last kv.Rev, prefixes []string) ([]kv.Change, error) {
	if after < s.floor || after > s.rev {
		return nil, kv.ErrCompacted
	}
	first, _ := slices.BinarySearchFunc(s.history, after+1, func(c kv.Change, rev kv.Rev) int { return int(c.Rev - rev) })
	var found []kv.Change
	for _, c := range s.history[first:] {
		if c.Rev > last {
			break
		}
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c.Key, p) }) {
			found = append(found, c)
		}
	}
	return found, nil
}

func (s *state) scan(q kv.Range) *kv.Page {
	page := &kv.Page{Rev: s.rev}
	at, _ := slices.BinarySearch(s.keys, max(q.Prefix, q.From))
	for _, key := range s.keys[at:] {
		if !strings.HasPrefix(key, q.Prefix) || q.Limit > 0 && len(page.Pairs) == q.Limit {
			break
		}
		p := s.records[key]
		if q.KeysOnly {
			p.Value = nil
		}
		p.Cut(q.Largest)
		page.Pairs = append(page.Pairs, p)
	}
	return page
}

// view is a state with the writes of an entry that is being put together.
type view struct {
	*state
	over map[string]kv.Pair // Rev 0: deleted
	txns [][]kv.Op
	grow int // by how many bytes the records grow
}

func (v *view) read(key string) kv.Pair {
	if p, ok := v.over[key]; ok {
		return p
	}
	if p, ok := v.records[key]; ok {
		return p
	}
	return kv.Pair{Key: key}
}

func (v *view) readAll(keys []string) []kv.Pair {
	if len(keys) == 0 {
		return nil
	}
	pairs := make([]kv.Pair, len(keys))
	for i, key := range keys {
		pairs[i] = v.read(key)
	}
	return pairs
}

func (v *view) holds(conds []kv.Compare) bool {
	for _, c := range conds {
		rev := v.read(c.Key).Rev
		if c.Rev == kv.Exists && rev == 0 || c.Rev != kv.Exists && rev != c.Rev {
			return false
		}
	}
	return true
}

// run evaluates a batch, and adds its writes to the view. If the result is an error, the view is
// of no use.
func (v *view) run(b *kv.Batch) (*kv.Outcome, error) {
	now := func() kv.Rev { return v.rev + kv.Rev(len(v.txns)) }
	if !v.holds(b.Guard) {
		out := &kv.Outcome{Rev: now(), Refused: true, Guard: make([]kv.Pair, len(b.Guard))}
		for i, c := range b.Guard {
			out.Guard[i] = v.read(c.Key)
		}
		return out, nil
	}
	out := &kv.Outcome{Results: make([]kv.Result, len(b.Txns))}
	before := v.grow
	for i := range b.Txns {
		t, r := &b.Txns[i], &out.Results[i]
		if !v.holds(t.If) {
			r.Reads = v.readAll(t.Else)
			continue
		}
		r.OK = true
		if t.Prev {
			r.Prev = v.read(t.Ops[0].Key).Rev
		}
		if len(t.Ops) > 0 {
			v.write(t.Ops, now()+1)
		}
		r.Rev = now()
		r.Reads = v.readAll(t.Then)
	}
	out.Rev = now()
	most := maxRecords
	if b.Heartbeat {
		most += reserve / 2
	}
	if v.grow > before && v.bytes+v.grow > most {
		return nil, fmt.Errorf("tenure: %w: the namespace would have more than %d MiB: trim logs or delete items",
			driver.ErrTooLarge, maxRecords>>20)
	}
	return out, nil
}

func (v *view) write(ops []kv.Op, rev kv.Rev) {
	own := make([]kv.Op, len(ops))
	for i, op := range ops {
		own[i] = kv.Op{Key: op.Key, Delete: op.Delete}
		old := v.read(op.Key)
		if old.Rev != 0 {
			v.grow -= size(old.Key, old.Value)
		}
		p := kv.Pair{Key: op.Key}
		if !op.Delete {
			own[i].Value = bytes.Clone(op.Value)
			p.Value, p.Rev = own[i].Value, rev
			v.grow += size(op.Key, op.Value)
		}
		v.over[op.Key] = p
	}
	v.txns = append(v.txns, own)
}
