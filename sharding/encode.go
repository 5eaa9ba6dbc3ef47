package sharding

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
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
	formVersion = 3
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
	kind := byte(0)
	if c.Base {
		kind = 1
	}
	b := []byte{kind}
	if c.Base {
		b = c.set(b)
	}
	b = appendShards(b, c.Gone)
	b = binary.AppendUvarint(b, uint64(len(c.Seats)))
	for _, seat := range c.Seats {
		m := seat.Member
		b = binary.AppendUvarint(b, uint64(seat.Slot))
		b = appendString(appendString(appendString(b, string(m.ID)), m.Node), m.Zone)
		b = binary.AppendUvarint(b, uint64(uint32(m.Weight)))
		flags := byte(0)
		if m.Drain {
			flags = 1
		}
		b = append(b, flags)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Moves)))
	last := int32(-1)
	for _, m := range c.Moves { // moves are sorted by shard
		b = binary.AppendUvarint(b, uint64(m.Shard-last))
		last = m.Shard
		b = binary.AppendUvarint(b, uint64(m.To+1))
		b = append(b, byte(m.Why))
		if c.Base {
			b = binary.AppendUvarint(b, uint64(c.Number-m.Plan))
		}
	}
	if c.Base {
		return b
	}
	b = c.Isolation.append(b)
	b = binary.AppendUvarint(appendShards(b, c.Settled), uint64(len(c.Refused)))
	for _, x := range c.Refused {
		b = appendString(binary.AppendUvarint(b, uint64(x.Shard)), x.Why)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Splits)))
	for _, s := range c.Splits {
		b = binary.AppendUvarint(b, uint64(s.Shard))
		b = binary.AppendUvarint(b, uint64(len(s.At)))
		for _, h := range s.At {
			b = binary.BigEndian.AppendUint64(b, h)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(c.Merges)))
	for _, m := range c.Merges {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(m.From)), uint64(m.To))
	}
	return b
}

func (c *planChange) set(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c.Specs)))
	for _, s := range c.Specs {
		b = appendString(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Suspects)))
	for _, name := range slices.Sorted(maps.Keys(c.Suspects)) {
		b = c.Suspects[name].append(appendString(b, name))
	}
	k := c.Keys
	if b = appendString(b, k.Name); k.Name == "" {
		return b
	}
	b = binary.AppendUvarint(appendString(b, k.Hash), uint64(k.Digits))
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(k.Shards)), uint64(c.Next))
	b = binary.AppendUvarint(b, uint64(len(c.Ranges)))
	last := 0
	for _, r := range c.Ranges {
		b = binary.AppendVarint(b, int64(r.Shard-last))
		last = r.Shard
		if r.Range.Empty() {
			b = append(b, 0)
			continue
		}
		b = binary.BigEndian.AppendUint64(append(b, 1), r.Range.From)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Changes)))
	for _, x := range c.Changes {
		b = appendRange(appendString(binary.AppendUvarint(b, uint64(c.Number-x.Number)), x.From), x.Rest)
		b = binary.AppendUvarint(b, uint64(len(x.Gifts)))
		for _, g := range x.Gifts {
			b = appendRange(appendString(b, g.Shard), g.Range)
		}
		b = appendString(b, x.Why)
	}
	return b
}

func (s *suspicion) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(s.Deaths)))
	for _, d := range s.list() {
		b = binary.BigEndian.AppendUint64(binary.AppendUvarint(b, uint64(d.at)), d.of)
	}
	return appendStrings(binary.AppendUvarint(b, uint64(s.Until)), s.Versions)
}

func (r *reader) suspicion() *suspicion {
	n := r.length(maxDeaths)
	s := &suspicion{Deaths: slices.Grow([]int64(nil), n), Of: slices.Grow([]uint64(nil), n)}
	for range n {
		s.Deaths, s.Of = append(s.Deaths, int64(r.num(maxNumber))), append(s.Of, r.hash())
	}
	s.Until, s.Versions = int64(r.num(maxNumber)), r.strings()
	return s
}

func (x *isolation) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(x.Time))
	if x.Time == 0 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(x.Within))
	b = appendShards(appendShards(appendShards(appendShards(b, x.Late), x.By), x.Hold), x.Free)
	b = binary.AppendUvarint(b, uint64(x.Left))
	return appendStrings(binary.AppendUvarint(b, uint64(x.Until)), x.Versions)
}

func (r *reader) isolation() (x isolation) {
	if x.Time = int64(r.num(maxNumber)); x.Time == 0 {
		return x
	}
	x.Within = int64(r.num(maxNumber))
	x.Late, x.By, x.Hold, x.Free = r.shards(maxShards), r.shards(maxShards), r.shards(maxShards), r.shards(maxShards)
	x.Left = int(r.num(maxDeaths))
	x.Until, x.Versions = int64(r.num(maxNumber)), r.strings()
	return x
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func (r *reader) strings() (out []string) {
	for range r.length(maxVersions) {
		out = append(out, r.text(maxVersion))
	}
	return out
}

func appendRange(b []byte, r assign.Range) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, r.From), r.To)
}

func appendShards(b []byte, list []int32) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = binary.AppendUvarint(b, uint64(s))
	}
	return b
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

func (r *reader) shards(limit uint64) (out []int32) {
	for range r.length(limit) {
		out = append(out, int32(r.num(limit)))
	}
	return out
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

func (r *reader) signed() int64 {
	x, n := binary.Varint(r.b)
	if n <= 0 || x > maxNumbers || x < -maxNumbers {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return x
}

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
		c.readSet(r)
	}
	c.Gone = r.shards(maxMembers)
	for range r.length(maxMembers) {
		seat := memberSlot{Slot: int32(r.num(maxMembers - 1))}
		seat.Member = assign.Member{ID: core.SessionID(r.text(64)), Node: r.text(128), Zone: r.text(2048)}
		seat.Member.Weight = int32(r.num(1<<31 - 1))
		seat.Member.Drain = r.byte()&1 != 0
		c.Seats = append(c.Seats, seat)
	}
	at := int64(-1)
	for range r.length(maxShards) {
		at += int64(r.num(maxShards))
		if r.err != nil {
			break
		}
		m := slotMove{Shard: int32(min(at, maxShards)), To: int32(r.num(maxMembers)) - 1, Why: assign.Reason(r.byte())}
		if c.Base {
			m.Plan = number - int64(r.num(uint64(number)))
		}
		c.Moves = append(c.Moves, m)
	}
	if !c.Base {
		c.readChanges(r)
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail()
	}
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

func (c *planChange) readChanges(r *reader) {
	c.Isolation = r.isolation()
	c.Settled = r.shards(maxShards)
	for range r.length(maxShards) {
		c.Refused = append(c.Refused, refusal{int32(r.num(maxShards)), r.text(maxRefused)})
	}
	for range r.length(maxShards) {
		s := assign.Split{Shard: int32(r.num(maxShards))}
		for range r.length(keyspace.MaxCuts) {
			s.At = append(s.At, r.hash())
		}
		c.Splits = append(c.Splits, s)
	}
	for range r.length(maxShards) {
		c.Merges = append(c.Merges, assign.Merge{From: int32(r.num(maxShards)), To: int32(r.num(maxShards))})
	}
}

// The log contains only the beginning of each range, which ends where the next range begins.
func (c *planChange) readSet(r *reader) {
	for range r.length(maxSpecs) {
		c.Specs = append(c.Specs, r.text(300))
	}
	n, held := r.length(maxShards), 0
	if n > 0 {
		c.Suspects = make(map[string]*suspicion, min(n, len(r.b)/5)) // each takes at least 5 bytes
	}
	for range n {
		name, s := r.text(300), r.suspicion()
		if c.Suspects[name] = s; s.held() || len(s.Versions) > 0 {
			held++
		}
		if held > few(maxShards) { // the assigner frees all of them before this number is reached
			r.fail()
		}
		if r.err != nil {
			return
		}
	}
	if c.Keys.Name = r.text(300); c.Keys.Name == "" {
		return
	}
	c.Keys.Hash, c.Keys.Digits = r.text(40), int(r.num(9))
	c.Keys.Shards, c.Next = int(r.num(keyspace.MaxShards)), int(r.num(maxNumbers))
	var starts []uint64
	last := int64(0)
	for range r.length(maxShards) {
		last += r.signed()
		n := numbered{int(last), empty}
		if r.byte() != 0 {
			n.Range = assign.Range{From: r.hash()}
			starts = append(starts, n.Range.From)
		}
		c.Ranges = append(c.Ranges, n)
	}
	slices.Sort(starts)
	if len(starts) == 0 || starts[0] != 0 || len(slices.Compact(slices.Clone(starts))) < len(starts) {
		r.fail()
		return
	}
	for i := range c.Ranges {
		x := &c.Ranges[i].Range
		if k, ok := slices.BinarySearch(starts, x.From); ok && !x.Empty() && k+1 < len(starts) {
			x.To = starts[k+1]
		}
	}
	n = r.length(maxShards)
	c.Changes = slices.Grow(c.Changes, min(n, len(r.b)/20)) // each takes at least 20 bytes
	for range n {
		x := rangeChange{Number: c.Number - int64(r.num(uint64(c.Number))), From: r.text(300), Rest: r.interval()}
		for range r.length(keyspace.MaxCuts) {
			x.Gifts = append(x.Gifts, gift{r.text(300), r.interval()})
		}
		x.Why = r.text(maxRefused)
		c.Changes = append(c.Changes, x)
	}
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
