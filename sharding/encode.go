package sharding

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// A plan in the log consists of a version byte, followed by numbers as varints. A member with a
// Manager publishes a mark with the newest form of plans that it can read. It can also read all
// older forms. The assigner writes plans in the highest form that all such members can read. A plan
// that does not fit into one entry is divided among several, each of which contains its place in
// the plan. A plan takes effect only when all its entries have been read.
const (
	formVersion = 4
	partBytes   = 48 << 10 // maximum size of the part of a plan in one entry
	maxPlan     = 32 << 20 // maximum size of all parts together, in bytes
	maxParts    = 1 << 16
)

var errForm = errors.New("sharding: not a plan")

// An encoded entry may exceed size by a few bytes.
func (c *planChange) encode(size int) [][]byte {
	body := c.body()
	parts := max(1, (len(body)+size-1)/size)
	out := make([][]byte, parts)
	for i := range out {
		b := []byte{max(c.form, formVersion)}
		b = binary.AppendUvarint(b, uint64(c.Number))
		b = binary.AppendUvarint(b, uint64(i))
		b = binary.AppendUvarint(b, uint64(parts))
		out[i] = append(b, body[i*size:min(len(body), (i+1)*size)]...)
	}
	return out
}

func (c *planChange) body() []byte {
	b := []byte{0}
	if c.Base {
		b = appendString(appendStrings([]byte{1}, c.Specs), c.Keys.Name)
	}
	if k := c.Keys; k.Name != "" {
		b = binary.AppendUvarint(binary.AppendUvarint(appendString(b, k.Hash), uint64(k.Digits)), uint64(k.Shards))
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(c.Next)), uint64(len(c.Changes)))
	for _, x := range c.Changes {
		b = appendRange(appendString(binary.AppendUvarint(b, uint64(c.Number-x.Number)), x.From), x.Rest)
		b = binary.AppendUvarint(b, uint64(len(x.Gifts)))
		for _, g := range x.Gifts {
			b = appendRange(appendString(b, g.Shard), g.Range)
		}
		b = appendString(b, x.Why)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Left)))
	for _, i := range c.Left {
		b = binary.AppendUvarint(b, uint64(i))
	}
	b = binary.AppendUvarint(b, uint64(len(c.Members)))
	for _, m := range c.Members {
		b = appendString(appendString(appendString(b, string(m.ID)), m.Node), m.Zone)
		b = binary.AppendUvarint(b, uint64(uint32(m.Weight)))
		flags := byte(0)
		if m.Drain {
			flags = 1
		}
		b = append(b, flags)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Rows)))
	last := -1
	for _, r := range c.Rows {
		b = binary.AppendUvarint(b, uint64(r.Shard-last))
		last = r.Shard
		b = r.append(b, c.Number)
	}
	return b
}

// These bits of a row's first byte show what the row contains. The other bits are the reason.
const (
	hasRange     = 1
	hasSuspicion = 2
)

func (r *row) append(b []byte, number int64) []byte {
	flags := byte(r.Why) << 2
	if !r.Range.Empty() {
		flags |= hasRange
	}
	if r.Suspicion != nil {
		flags |= hasSuspicion
	}
	b = binary.AppendUvarint(binary.AppendUvarint(append(b, flags), uint64(r.Owner+1)), uint64(number-r.Plan))
	if !r.Range.Empty() {
		b = binary.BigEndian.AppendUint64(b, r.Range.From)
	}
	if r.Suspicion != nil {
		b = r.Suspicion.append(b)
	}
	return b
}

func (r *reader) row(number int64) row {
	flags := r.byte()
	x := row{Range: empty, Owner: int32(r.num(maxMembers)) - 1, Plan: number - int64(r.num(uint64(number))), Why: assign.Reason(flags >> 2)}
	if flags&hasRange != 0 {
		x.Range = assign.Range{From: r.hash()}
	}
	if flags&hasSuspicion != 0 {
		x.Suspicion = r.suspicion()
	}
	return x
}

func (s *suspicion) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(s.Deaths)))
	for _, d := range s.Deaths {
		b = binary.BigEndian.AppendUint64(binary.AppendUvarint(b, uint64(d.at)), d.of)
	}
	return appendStrings(binary.AppendUvarint(b, uint64(s.Until)), s.Versions)
}

func (r *reader) suspicion() *suspicion {
	s := &suspicion{}
	for range r.length(maxDeaths) {
		s.Deaths = append(s.Deaths, death{int64(r.num(maxNumber)), r.hash()})
	}
	s.Until, s.Versions = int64(r.num(maxNumber)), r.strings(maxVersions, maxVersion)
	return s
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func (r *reader) strings(most, size uint64) (out []string) {
	for range r.length(most) {
		out = append(out, r.text(size))
	}
	return out
}

func appendRange(b []byte, r assign.Range) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, r.From), r.To)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// After the first error, reader returns only zero values.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() { r.b, r.err = nil, errForm }

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	x := r.b[0]
	r.b = r.b[1:]
	return x
}

func (r *reader) num(limit uint64) uint64 {
	x, n := binary.Uvarint(r.b)
	if n <= 0 || x > limit {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return x
}

// Each of the items that follow takes at least one byte.
func (r *reader) length(limit uint64) int {
	n := r.num(limit)
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) hash() uint64 {
	if len(r.b) < 8 {
		r.fail()
		return 0
	}
	h := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return h
}

func (r *reader) interval() assign.Range { return assign.Range{From: r.hash(), To: r.hash()} }

func (r *reader) text(limit uint64) string {
	n := r.length(limit)
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

const maxNumber = 1 << 62

func decode(number int64, body []byte) (*planChange, error) {
	r := &reader{b: body}
	c := &planChange{Number: number, Base: r.byte()&1 != 0}
	if c.Base {
		c.Specs, c.Keys.Name = r.strings(maxSpecs, 300), r.text(300)
	}
	if c.Keys.Name != "" {
		c.Keys.Hash, c.Keys.Digits, c.Keys.Shards = r.text(40), int(r.num(9)), int(r.num(keyspace.MaxShards))
	}
	c.Next = int(r.num(maxNumbers))
	n := r.length(maxShards)
	c.Changes = slices.Grow(c.Changes, min(n, len(r.b)/20)) // each takes at least 20 bytes
	for range n {
		x := rangeChange{Number: number - int64(r.num(uint64(number))), From: r.text(300), Rest: r.interval()}
		for range r.length(keyspace.MaxCuts) {
			x.Gifts = append(x.Gifts, gift{r.text(300), r.interval()})
		}
		x.Why = r.text(maxRefused)
		c.Changes = append(c.Changes, x)
	}
	for range r.length(maxMembers) {
		c.Left = append(c.Left, int32(r.num(maxMembers)))
	}
	last := core.SessionID("")
	for range r.length(maxMembers) {
		m := assign.Member{ID: core.SessionID(r.text(64)), Node: r.text(128), Zone: r.text(2048), Weight: int32(r.num(1<<31 - 1))}
		m.Drain = r.byte()&1 != 0
		if m.ID <= last {
			r.fail()
		}
		last = m.ID
		c.Members = append(c.Members, m)
	}
	at, held := -1, 0
	for range r.length(maxShards) {
		step := r.num(1 << 32)
		x := r.row(number)
		if s := x.Suspicion; s.held() || s != nil && len(s.Versions) > 0 {
			held++
		}
		// The assigner frees all shards before this number is in quarantine.
		if step == 0 || held > few(maxShards) {
			r.fail()
		}
		if r.err != nil {
			break
		}
		at += int(step)
		x.Shard = at
		c.Rows = append(c.Rows, x)
	}
	if len(r.b) > 0 {
		r.fail()
	}
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

// assembly assembles plans from the log's entries. The zero value is ready for use.
type assembly struct {
	number int64
	token  core.Token
	next   uint64
	parts  uint64
	body   []byte
	first  core.Seq // the first entry of the last complete plan
	from   core.Seq
	newest byte // newest form that is read
}

// add records the log's next entry, and returns the plan that the entry completes, if any. If the
// entry begins a new plan, add drops the parts of an incomplete plan. If add does not understand
// the entry, it returns an error, and the entry counts as a gap.
func (a *assembly) add(e core.Entry) (*planChange, error) {
	r := &reader{b: e.Payload}
	if v, newest := r.byte(), max(a.newest, formVersion); r.err == nil && (v < formVersion || v > newest) {
		*a = assembly{}
		return nil, fmt.Errorf("sharding: entry %d has form %d, this version reads %d: bring all members to one version", e.Seq, v, newest)
	}
	number := int64(r.num(maxNumber))
	part, parts := r.num(maxParts), r.num(maxParts)
	if r.err != nil || part >= parts {
		*a = assembly{}
		return nil, fmt.Errorf("sharding: entry %d: %w", e.Seq, errForm)
	}
	switch {
	case part == 0:
		*a = assembly{number: number, token: e.Token, parts: parts, from: e.Seq}
	case a.parts != parts || a.number != number || a.token != e.Token || a.next != part:
		*a = assembly{}
		return nil, fmt.Errorf("sharding: entry %d: the beginning of its plan is missing", e.Seq)
	}
	a.next++
	a.body = append(a.body, r.b...)
	if len(a.body) > maxPlan {
		*a = assembly{}
		return nil, fmt.Errorf("sharding: entry %d: %w", e.Seq, errForm)
	}
	if a.next < parts {
		return nil, nil
	}
	body := a.body
	*a = assembly{first: a.from}
	c, err := decode(number, body)
	if err != nil {
		return nil, fmt.Errorf("sharding: entry %d: %w", e.Seq, err)
	}
	return c, nil
}
