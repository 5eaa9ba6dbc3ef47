package kv

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/tenure-go/tenure/core/driver"
)

// Hot records are one line of text: the number of the format, then fields
// separated by one space. What follows the known fields is ignored, so that a
// later version may add some.
const (
	format        = "1"
	maxLineRecord = 1024    // bytes; a longer one is corrupt
	maxCount      = 1 << 62 // of commits and entries, so that adding to it cannot overflow
)

// ErrCorrupt is matched by the error of a record that cannot be read.
var ErrCorrupt = errors.New("corrupt record")

// CorruptError names a record that cannot be read, and why. Only what needs that
// record fails with it. A write that meets it also matches driver.ErrRetry: it
// was not applied, and may be once an operator repaired the record.
type CorruptError struct {
	Key    string
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("tenure: the record %q is corrupt (%s): restore it from a backup", e.Key, e.Reason)
}

// Is makes a CorruptError match ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// shardRecord is a shard's record. While it is held its token is the namespace's
// base plus the record's own revision, which it cannot contain; from is the token
// that the lease was granted from (rule A3). When it is free, token is that of
// the last lease, since the release moved the revision on.
type shardRecord struct {
	session driver.SessionID
	from    driver.Token // if session is not empty
	token   driver.Token // if session is empty
}

func (r shardRecord) encode() []byte {
	if r.session == "" {
		return fmt.Appendf(nil, "%s free %d", format, r.token)
	}
	b := make([]byte, 0, len(format)+len(" held ")+len(r.session)+21)
	b = append(b, format+" held "...)
	b = append(b, r.session...)
	b = append(b, ' ')
	return strconv.AppendInt(b, int64(r.from), 10)
}

func decodeShard(p Pair) (shardRecord, error) {
	l := line{rest: p.Value}
	var r shardRecord
	l.format()
	switch kind := l.word(); string(kind) {
	case "held":
		r.session = driver.SessionID(l.word())
		r.from = driver.Token(l.number())
		if l.reason == "" && driver.CheckSession(r.session) != nil {
			l.reason = "no valid session"
		}
	case "free":
		r.token = driver.Token(l.number())
		if l.reason == "" && r.token == 0 {
			l.reason = "free without a token"
		}
	default:
		l.fail("neither held nor free")
	}
	if l.reason != "" {
		return shardRecord{}, &CorruptError{Key: p.Key, Reason: l.reason}
	}
	return r, nil
}

func encodeHead(h driver.Head) []byte {
	b := make([]byte, 0, 64)
	b = append(b, format...)
	for _, n := range [...]int64{int64(h.Number), int64(h.Seq), int64(h.Oldest), int64(h.Token)} {
		b = append(b, ' ')
		b = strconv.AppendInt(b, n, 10)
	}
	b = append(b, ' ')
	return strconv.AppendUint(b, uint64(h.Nonce), 16)
}

// decodeHead returns the zero Head if there is no record.
func decodeHead(p Pair) (driver.Head, error) {
	if p.Rev == 0 {
		return driver.Head{}, nil
	}
	l := line{rest: p.Value}
	l.format()
	h := driver.Head{
		Number: driver.WriteNo(l.number()),
		Seq:    driver.Seq(l.number()),
		Oldest: driver.Seq(l.number()),
		Token:  driver.Token(l.number()),
		Nonce:  driver.Nonce(l.hex()),
	}
	if h.Number < 1 || h.Number > maxCount || h.Seq > maxCount || h.Oldest < 1 || h.Oldest-1 > h.Seq || h.Token < 1 {
		l.fail("counts do not fit together")
	}
	if l.reason != "" {
		return driver.Head{}, &CorruptError{Key: p.Key, Reason: l.reason}
	}
	return h, nil
}

// encodeBeat makes a record that differs from the last one: a store may take
// equal bytes for no change.
func encodeBeat(n uint64) []byte {
	return strconv.AppendUint([]byte(format+" "), n, 10)
}

// line reads the fields of a one-line record. It keeps the first failure, after
// which every field is zero.
type line struct {
	rest   []byte
	reason string
}

func (l *line) fail(reason string) {
	if l.reason == "" {
		l.reason = reason
	}
}

func (l *line) format() {
	if len(l.rest) > maxLineRecord {
		l.fail("too long")
		return
	}
	if w := l.word(); l.reason == "" && string(w) != format {
		l.fail("unknown format")
	}
}

func (l *line) word() []byte {
	if l.reason != "" {
		return nil
	}
	w, rest, _ := bytes.Cut(l.rest, []byte{' '})
	if len(w) == 0 {
		l.fail("a field is missing")
		return nil
	}
	l.rest = rest
	return w
}

// number reads a decimal number that is not negative.
func (l *line) number() int64 { return int64(l.parse(10, 63)) }

func (l *line) hex() uint64 { return l.parse(16, 64) }

func (l *line) parse(base, bits int) uint64 {
	w := l.word()
	if l.reason != "" {
		return 0
	}
	n, err := strconv.ParseUint(string(w), base, bits)
	if err != nil {
		l.fail("a field is not a number")
		return 0
	}
	return n
}
