package sharding

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/core"
)

// The form of a plan in the log: one byte of version, then numbers as varints. A
// plan that is longer than an entry may be is several entries, each with its
// place among them; only all of them together count, so that a plan which its
// assigner did not finish is no plan.
const (
	formVersion = 1
	partBytes   = 48 << 10 // of a plan in one entry, at most
	maxPlan     = 32 << 20 // bytes of all parts
	maxParts    = 1 << 16
)

var errForm = errors.New("sharding: not a plan")

// encode returns the entries of a change, each of at most size bytes and a few.
func (c *planChange) encode(size int) [][]byte {
	body := c.body()
	parts := max(1, (len(body)+size-1)/size)
	out := make([][]byte, parts)
	for i := range out {
		b := []byte{formVersion}
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
	b = binary.AppendUvarint(b, uint64(len(c.Specs)))
	for _, s := range c.Specs {
		b = appendString(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Gone)))
	for _, slot := range c.Gone {
		b = binary.AppendUvarint(b, uint64(slot))
	}
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
	for _, m := range c.Moves { // by shard
		b = binary.AppendUvarint(b, uint64(m.Shard-last))
		last = m.Shard
		b = binary.AppendUvarint(b, uint64(m.To+1))
		b = append(b, byte(m.Why))
		if c.Base {
			b = binary.AppendUvarint(b, uint64(c.Number-m.Plan))
		}
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// reader takes a plan apart. After the first error everything it returns is zero.
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

// num reads a number of at most limit.
func (r *reader) num(limit uint64) uint64 {
	x, n := binary.Uvarint(r.b)
	if n <= 0 || x > limit {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return x
}

// length reads how many things follow, each of at least one byte.
func (r *reader) length(limit uint64) int {
	n := r.num(limit)
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
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
	for range r.length(maxSpecs) {
		c.Specs = append(c.Specs, r.text(300))
	}
	for range r.length(maxMembers) {
		c.Gone = append(c.Gone, int32(r.num(maxMembers-1)))
	}
	for range r.length(maxMembers) {
		seat := memberSlot{Slot: int32(r.num(maxMembers - 1))}
		seat.Member = Member{ID: core.SessionID(r.text(64)), Node: r.text(128), Zone: r.text(2048)}
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
		m := slotMove{Shard: int32(min(at, maxShards)), To: int32(r.num(maxMembers)) - 1, Why: Reason(r.byte())}
		if c.Base {
			m.Plan = number - int64(r.num(uint64(number)))
		}
		c.Moves = append(c.Moves, m)
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail()
	}
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

// assembly puts the entries of the log together to plans. The zero value is
// ready for use.
type assembly struct {
	number int64
	token  core.Token
	next   uint64
	parts  uint64
	body   []byte
	first  core.Seq // entry that the last complete plan begins with
	from   core.Seq
}

// add takes in the next entry of the log, and returns the plan that it completes,
// if it does. Parts of a plan that nobody completed are dropped when another
// begins. An error says that the entry was not understood; it counts as a gap.
func (a *assembly) add(e core.Entry) (*planChange, error) {
	r := &reader{b: e.Payload}
	if v := r.byte(); r.err == nil && v != formVersion {
		*a = assembly{}
		return nil, fmt.Errorf("sharding: entry %d has form %d, this version reads %d: bring all members to one version", e.Seq, v, formVersion)
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
		return nil, nil // the rest of something whose beginning is not known
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
