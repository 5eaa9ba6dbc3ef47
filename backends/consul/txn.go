package consul

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

const (
	verbSet            = "set"
	verbCAS            = "cas"
	verbDelete         = "delete"
	verbGet            = "get"
	verbGetOrEmpty     = "get-or-empty"
	verbCheckIndex     = "check-index"
	verbCheckNotExists = "check-not-exists"
)

// operation is a transaction's operation, as encoded by the HTTP API.
type operation struct {
	KV keyOperation `json:"KV"`
}

type keyOperation struct {
	Verb  string `json:"Verb"`
	Key   string `json:"Key"`
	Value []byte `json:"Value,omitempty"`
	Flags uint64 `json:"Flags,omitempty"`
	Index uint64 `json:"Index,omitempty"`
}

// answers reports whether Consul's answer to an applied operation includes an entry.
func (o *operation) answers() bool {
	return o.KV.Verb != verbDelete && o.KV.Verb != verbCheckNotExists
}

// size returns an upper bound on the operation's length in a request.
func (o *operation) size() int {
	return operationOverhead + len(o.KV.Key) + base64.StdEncoding.EncodedLen(len(o.KV.Value))
}

// operationOverhead covers an operation's names and quotes, and two numbers of 20 digits.
const operationOverhead = 128

// The operation writes a value with random flags, because Consul ignores a write of the same value
// and flags, and keeps the index.
func put(verb, key string, value []byte, index kv.Rev) operation {
	return operation{keyOperation{Verb: verb, Key: key, Value: value, Flags: rand.Uint64(), Index: uint64(index)}}
}

// condition returns an operation that fails if c does not hold.
func condition(c kv.Compare) operation {
	switch c.Rev {
	case kv.Absent:
		return operation{keyOperation{Verb: verbCheckNotExists, Key: c.Key}}
	case kv.Exists:
		return operation{keyOperation{Verb: verbGet, Key: c.Key}}
	}
	return operation{keyOperation{Verb: verbCheckIndex, Key: c.Key, Index: uint64(c.Rev)}}
}

// part is the range [lo, hi) of a request's operations that belong to a kv.Txn or a guard.
type part struct {
	lo, hi int
	shared []int // conditions shared with earlier parts
	index  int   // transaction's index in the batch; guardPart or piggybackPart
	prev   int   // operation whose result is Prev; -1 if prevIs has it
	prevIs kv.Rev
	then   int // first operation of Then
}

const (
	guardPart     = -1
	piggybackPart = -2
	witnessPart   = -3
)

type request struct {
	ops   []operation
	parts []part
	bytes int
	conds map[kv.Compare]int // operation of each condition
}

func (r *request) add(o operation) {
	r.ops = append(r.ops, o)
	r.bytes += o.size()
}

// condition adds a condition to a part. Parts with the same condition share one operation. For
// example, all claims for a dead member's shards check that the member is gone.
func (r *request) condition(p *part, c kv.Compare) int {
	i, ok := r.conds[c]
	if ok {
		p.shared = append(p.shared, i)
		return i
	}
	if i = len(r.ops); r.conds == nil {
		r.conds = make(map[kv.Compare]int)
	}
	r.conds[c] = i
	r.add(condition(c))
	return i
}

// guard adds conditions that do not belong to any transaction.
func (r *request) guard(conds []kv.Compare) {
	lo := len(r.ops)
	for _, c := range conds {
		r.add(condition(c))
	}
	r.parts = append(r.parts, part{lo: lo, hi: len(r.ops), index: guardPart, prev: -1})
}

// look adds a read that does not affect the outcome.
func (r *request) look(key string) {
	lo := len(r.ops)
	r.add(operation{keyOperation{Verb: verbGetOrEmpty, Key: key}})
	r.parts = append(r.parts, part{lo: lo, hi: len(r.ops), index: witnessPart, prev: -1})
}

// txn adds a transaction. Its conditions come first, except that a condition on a record that the
// transaction puts is part of the put. Although Consul runs operations in order, the effect is the
// same as if it evaluated all conditions first, because no operation of a batch reads a record that
// another writes.
func (r *request) txn(t *kv.Txn, index int) {
	p := part{lo: len(r.ops), index: index, prev: -1}
	for _, c := range t.If {
		if put, ok := putOf(t, c.Key); ok && c.Rev != kv.Exists {
			if t.Prev && put == 0 {
				p.prevIs = c.Rev
			}
			continue
		}
		if t.Prev && c.Key == t.Ops[0].Key {
			if c.Rev == kv.Exists {
				p.prev = r.condition(&p, c)
				continue
			}
			p.prevIs = c.Rev
		}
		if c.Rev != kv.Exists || !deletes(t, c.Key) {
			r.condition(&p, c)
		}
	}
	if t.Prev && p.prev < 0 && p.prevIs == 0 && !compared(t, t.Ops[0].Key) {
		p.prev = len(r.ops)
		r.add(operation{keyOperation{Verb: verbGetOrEmpty, Key: t.Ops[0].Key}})
	}
	for _, o := range t.Ops {
		if o.Delete {
			r.add(operation{keyOperation{Verb: verbDelete, Key: o.Key}})
			continue
		}
		verb, seen := verbSet, kv.Rev(0)
		for _, c := range t.If {
			if c.Key == o.Key && c.Rev != kv.Exists {
				verb, seen = verbCAS, c.Rev
			}
		}
		r.add(put(verb, o.Key, o.Value, seen))
	}
	p.then = len(r.ops)
	for _, key := range t.Then {
		r.add(operation{keyOperation{Verb: verbGetOrEmpty, Key: key}})
	}
	p.hi = len(r.ops)
	r.parts = append(r.parts, p)
}

// deletes reports whether a transaction only deletes the record of its only condition. For such a
// transaction, the request does not check whether the record exists, because the check would return
// the record's value. If the record was already gone, the transaction counts as applied.
func deletes(t *kv.Txn, key string) bool {
	return len(t.If) == 1 && len(t.Ops) == 1 && t.Ops[0].Delete && t.Ops[0].Key == key
}

func putOf(t *kv.Txn, key string) (int, bool) {
	for i, o := range t.Ops {
		if o.Key == key && !o.Delete {
			return i, true
		}
	}
	return 0, false
}

func compared(t *kv.Txn, key string) bool {
	for _, c := range t.If {
		if c.Key == key {
			return true
		}
	}
	return false
}

// cut removes the last part.
func (r *request) cut() {
	p := r.parts[len(r.parts)-1]
	for i := p.lo; i < p.hi; i++ {
		r.bytes -= r.ops[i].size()
	}
	for c, i := range r.conds {
		if i >= p.lo {
			delete(r.conds, c)
		}
	}
	r.ops, r.parts = r.ops[:p.lo], r.parts[:len(r.parts)-1]
}

type reply struct {
	Results []struct{ KV *entry }
	Errors  []struct {
		OpIndex int
		What    string
	}
}

// entry is a record, as encoded by the HTTP API.
type entry struct {
	Key         string
	Value       []byte
	ModifyIndex uint64
}

func (e *entry) pair() kv.Pair {
	p := kv.Pair{Key: e.Key, Rev: kv.Rev(e.ModifyIndex)}
	if p.Rev != 0 {
		p.Value = e.Value
		if p.Value == nil {
			p.Value = []byte{}
		}
	}
	return p
}

// match returns each operation's entry, or nil for an operation without one. Consul silently omits
// entries that the token may not read.
func (r *request) match(a *reply) ([]*entry, error) {
	entries := make([]*entry, len(r.ops))
	n := 0
	for i := range r.ops {
		if !r.ops[i].answers() {
			continue
		}
		if n == len(a.Results) || a.Results[n].KV == nil || a.Results[n].KV.Key != r.ops[i].KV.Key {
			return nil, fmt.Errorf("consul answered without the record %q: give the token the right to read and write "+
				"the namespace's prefix", r.ops[i].KV.Key)
		}
		entries[i] = a.Results[n].KV
		if err := possible(entries[i].ModifyIndex); err != nil {
			return nil, err
		}
		n++
	}
	return entries, nil
}

// refusals returns the parts of a request whose conditions did not hold. For any other failure, the
// result is an error, and nothing was applied.
func (r *request) refusals(a *reply) (map[int]bool, error) {
	refused := make(map[int]bool)
	for _, e := range a.Errors {
		if e.OpIndex < 0 || e.OpIndex >= len(r.ops) {
			return nil, fmt.Errorf("tenure: %w: %s", driver.ErrRetry, e.What)
		}
		if err := operationError(&r.ops[e.OpIndex], e.What); err != nil {
			return nil, err
		}
		for _, p := range r.parts {
			if p.lo <= e.OpIndex && e.OpIndex < p.hi || slices.Contains(p.shared, e.OpIndex) {
				refused[p.index] = true
			}
		}
	}
	if len(refused) == 0 {
		return nil, fmt.Errorf("tenure: %w: consul refused a transaction without saying why", driver.ErrRetry)
	}
	return refused, nil
}
