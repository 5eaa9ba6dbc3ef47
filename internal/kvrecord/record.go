// Package kvrecord reads and writes what the records of package kv and its change logs share.
// These are one-line records, the record of a shard, and the head that may follow it.
package kvrecord

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/grants"
)

// A record is one line of text. It consists of the number of the format, and fields separated
// by one space. Text after the known fields is ignored, so that a later version may add fields.
const (
	Format = "1"
	MaxLen = 1024 // bytes; a longer one is damaged
)

// Line reads the fields of a one-line record. After the first failure, which it keeps, every field
// is zero.
type Line struct {
	Rest   []byte
	Reason string // of the first failure; empty for none
}

func (l *Line) Fail(reason string) {
	if l.Reason == "" {
		l.Reason = reason
	}
}

// Format reads the number of the format of a record of at most most bytes.
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

// Number reads a decimal number that is not negative.
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
// record's own revision, which the record cannot contain. From is the token that the lease was
// granted from (rule A3). When the shard is free, Token is the token of the last lease, because the
// release changed the revision.
type Shard struct {
	Session driver.SessionID
	From    driver.Token // if Session is not empty
	Token   driver.Token // if Session is empty
	Past    string       // the last leases in the form of package grants, possibly with one byte too many
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

// ParseShard reads a shard's record, or returns why it is damaged.
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

// Head is a shard's head and its revision, as the writer of the shard's record knew it. Rev is
// 0 if there was none. A hand-over writes the head behind the shard's record, so that the
// successor's first commit needs no read. Readers of the record ignore the head, and it decides
// nothing, because the commit compares it.
type Head struct {
	Rev  int64
	Text []byte
}

const headMark = " = "

// AppendHead returns a shard's record with a head behind it.
func AppendHead(shard []byte, h Head) []byte {
	shard = append(shard, headMark...)
	shard = strconv.AppendInt(shard, h.Rev, 10)
	return append(append(shard, ' '), h.Text...)
}

// CutHead removes the head from a shard's record. Without a head, ok is false.
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
