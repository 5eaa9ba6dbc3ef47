// Package kvrecord encodes and decodes the records that packages kv and changelog share: one-line
// records, a shard's record, and the head that may follow that record.
package kvrecord

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/grants"
)

// A record is one line of text, with the format number and fields separated by single spaces.
// Readers ignore text after the fields that they know, so a later version may add fields.
const (
	Format = "1"
	MaxLen = 1024 // bytes; a longer record is damaged
)

// Line reads the fields of a one-line record. A Line records the first failure, and returns zero
// for every later field.
type Line struct {
	Rest   []byte
	Reason string // the first failure, or empty
}

func (l *Line) Fail(reason string) {
	if l.Reason == "" {
		l.Reason = reason
	}
}

// Format reads a record's format number. It fails if the record is longer than the given limit.
func (l *Line) Format(most int) {
	if len(l.Rest) > most {
		l.Fail("too long")
		return
	}
	if w := l.Word(); l.Reason == "" && string(w) != Format {
		l.Fail("unknown format")
	}
}

func (l *Line) Word() []byte {
	if l.Reason != "" {
		return nil
	}
	w, rest, _ := bytes.Cut(l.Rest, []byte{' '})
	if len(w) == 0 {
		l.Fail("a field is missing")
		return nil
	}
	l.Rest = rest
	return w
}

// Number reads a non-negative decimal number.
func (l *Line) Number() int64 { return int64(l.parse(10, 63)) }

// Hex reads a hexadecimal number.
func (l *Line) Hex() uint64 { return l.parse(16, 64) }

func (l *Line) parse(base, bits int) uint64 {
	w := l.Word()
	if l.Reason != "" {
		return 0
	}
	n, err := strconv.ParseUint(string(w), base, bits)
	if err != nil {
		l.Fail("a field is not a number")
		return 0
	}
	return n
}

// Shard is a shard's record. While the shard is held, its token is the namespace's base plus the
// record's revision. The record cannot contain its own revision. From is the token from which the
// lease was granted (rule A3). While the shard is free, Token is the token of the last lease,
// because the release changed the record's revision.
type Shard struct {
	Session driver.SessionID
	From    driver.Token // if Session is not empty
	Token   driver.Token // if Session is empty
	Past    string       // the last leases in the format of package grants, possibly with one byte too many
}

// Encode returns the record's text.
func (s Shard) Encode() []byte {
	if s.Session == "" {
		return appendPast(fmt.Appendf(nil, "%s free %d", Format, s.Token), s.Past)
	}
	b := make([]byte, 0, len(Format)+len(" held ")+len(s.Session)+21+len(" @")+len(s.Past))
	b = append(b, Format+" held "...)
	b = append(b, s.Session...)
	b = append(b, ' ')
	return appendPast(strconv.AppendInt(b, int64(s.From), 10), s.Past)
}

func appendPast(b []byte, past string) []byte {
	if past != "" {
		b = append(append(b, " @"...), past...)
	}
	return b
}

// ParseShard reads a shard's record, or returns the reason why the record is damaged.
func ParseShard(text []byte) (s Shard, reason string) {
	l := Line{Rest: text}
	l.Format(MaxLen)
	switch kind := l.Word(); string(kind) {
	case "held":
		s.Session = driver.SessionID(l.Word())
		s.From = driver.Token(l.Number())
		if l.Reason == "" && driver.CheckSession(s.Session) != nil {
			l.Fail("no valid session")
		}
	case "free":
		s.Token = driver.Token(l.Number())
		if l.Reason == "" && s.Token == 0 {
			l.Fail("free without a token")
		}
	default:
		l.Fail("neither held nor free")
	}
	if l.Reason != "" {
		return Shard{}, l.Reason
	}
	if bytes.HasPrefix(l.Rest, []byte{'@'}) {
		text := l.Word()[1:]
		s.Past = string(text[:min(len(text), grants.MaxBytes+1)])
	}
	return s, ""
}

// Head is a shard's head and the head's revision, as known to the process that wrote the shard's
// record. Rev is 0 if the shard had no head. A hand-over appends the head to the shard's record, so
// the successor's first commit needs no read. Other readers of the record ignore the head. A wrong
// head is harmless, because the commit compares the head.
type Head struct {
	Rev  int64
	Text []byte
}

const headMark = " = "

// AppendHead returns a shard's record with a head appended.
func AppendHead(shard []byte, h Head) []byte {
	shard = append(shard, headMark...)
	shard = strconv.AppendInt(shard, h.Rev, 10)
	return append(append(shard, ' '), h.Text...)
}

// CutHead removes the head from a shard's record. If the record has no head, ok is false.
func CutHead(text []byte) (shard []byte, h Head, ok bool) {
	shard, rest, ok := bytes.Cut(text, []byte(headMark))
	if !ok {
		return text, Head{}, false
	}
	digits, head, _ := bytes.Cut(rest, []byte{' '})
	rev, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || rev < 0 {
		return text, Head{}, false
	}
	return shard[:len(shard):len(shard)], Head{rev, head}, true
}
