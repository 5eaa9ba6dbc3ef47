package examplebackend

import (
	"slices"
	"strings"

	"github.com/tenure-go/tenure/backends/kv"
)

// maxHistory and maxHistoryBytes bound the changes that are kept for watches.
const (
	maxHistory      = 1 << 14
	maxHistoryBytes = 4 << 20
)

// table is the content of the journal: the records in the order of their keys, and
// the last changes. Values in it are never changed in place.
type table struct {
	rev     kv.Rev
	floor   kv.Rev // changes up to here are not in history
	bytes   int    // of keys and values
	records map[string]kv.Pair
	keys    []string
	history []kv.Change
	kept    int // bytes in history
}

// line is one line of the journal: the changes of one batch of writes.
type line struct {
	Rev  kv.Rev   `json:"rev"`
	Base bool     `json:"base,omitempty"` // a record of a journal that was rewritten, not a change
	Set  []record `json:"set"`
}

type record struct {
	Key     string `json:"k"`
	Value   []byte `json:"v,omitempty"`
	Deleted bool   `json:"d,omitempty"`
	Rev     kv.Rev `json:"r,omitempty"` // of a base record; that of the line otherwise
}

func (t *table) apply(l line) {
	if t.records == nil {
		t.records = make(map[string]kv.Pair)
	}
	t.rev = l.Rev
	for _, r := range l.Set {
		if r.Rev == 0 {
			r.Rev = l.Rev
		}
		t.put(r)
		if !l.Base {
			c := kv.Change{Key: r.Key, Value: r.Value, Rev: r.Rev, Deleted: r.Deleted}
			t.history = append(t.history, c)
			t.kept += size(c)
		}
	}
	if l.Base {
		t.floor = l.Rev
	}
	if len(t.history) > maxHistory || t.kept > maxHistoryBytes {
		t.forget()
	}
}

func size(c kv.Change) int { return len(c.Key) + len(c.Value) }

// forget drops the older half of the changes, whole lines of them.
func (t *table) forget() {
	n := (len(t.history) + 1) / 2
	for n < len(t.history) && t.history[n].Rev == t.history[n-1].Rev {
		n++
	}
	t.floor = t.history[n-1].Rev
	for _, c := range t.history[:n] {
		t.kept -= size(c)
	}
	t.history = slices.Delete(t.history, 0, n)
}

func (t *table) put(r record) {
	old, had := t.records[r.Key]
	if had {
		t.bytes -= len(r.Key) + len(old.Value)
	}
	at, _ := slices.BinarySearch(t.keys, r.Key)
	switch {
	case r.Deleted && had:
		delete(t.records, r.Key)
		t.keys = slices.Delete(t.keys, at, at+1)
	case !r.Deleted:
		t.records[r.Key] = kv.Pair{Key: r.Key, Value: r.Value, Rev: r.Rev}
		t.bytes += len(r.Key) + len(r.Value)
		if !had {
			t.keys = slices.Insert(t.keys, at, r.Key)
		}
	}
}

func (t *table) holds(conditions []kv.Compare) bool {
	for _, c := range conditions {
		rev := t.records[c.Key].Rev
		if c.Rev == kv.Exists && rev == 0 || c.Rev != kv.Exists && rev != c.Rev {
			return false
		}
	}
	return true
}

func (t *table) read(keys []string) []kv.Pair {
	pairs := make([]kv.Pair, len(keys))
	for i, key := range keys {
		pairs[i] = kv.Pair{Key: key}
		if p, ok := t.records[key]; ok {
			pairs[i] = p
		}
	}
	return pairs
}

func (t *table) scan(q kv.Range) *kv.Page {
	page := &kv.Page{Rev: t.rev}
	at, _ := slices.BinarySearch(t.keys, max(q.Prefix, q.From))
	for _, key := range t.keys[at:] {
		if !strings.HasPrefix(key, q.Prefix) || q.Limit > 0 && len(page.Pairs) == q.Limit {
			break
		}
		p := t.records[key]
		if q.KeysOnly {
			p.Value = nil
		}
		page.Pairs = append(page.Pairs, p)
	}
	return page
}

// since returns the changes under the prefixes after a revision, false if they
// are not known.
func (t *table) since(after kv.Rev, prefixes []string) ([]kv.Change, bool) {
	if after < t.floor || after > t.rev {
		return nil, false
	}
	first, _ := slices.BinarySearchFunc(t.history, after+1,
		func(c kv.Change, rev kv.Rev) int { return int(c.Rev - rev) })
	var found []kv.Change
	for _, c := range t.history[first:] {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c.Key, p) }) {
			found = append(found, c)
		}
	}
	return found, true
}

// plan evaluates a batch whose guard holds: the line to append, and each
// transaction's outcome without its reads. All conditions may be evaluated first,
// because no transaction writes a record that another one mentions.
func (t *table) plan(b *kv.Batch) (line, []kv.Result) {
	l := line{Rev: t.rev + 1}
	results := make([]kv.Result, len(b.Txns))
	for i := range b.Txns {
		txn, r := &b.Txns[i], &results[i]
		if !t.holds(txn.If) {
			continue
		}
		r.OK = true
		if txn.Prev {
			r.Prev = t.records[txn.Ops[0].Key].Rev
		}
		for _, op := range txn.Ops {
			if _, there := t.records[op.Key]; op.Delete && !there {
				continue
			}
			l.Set = append(l.Set, record{Key: op.Key, Value: slices.Clone(op.Value), Deleted: op.Delete})
		}
	}
	return l, results
}
