package kv

import (
	"strconv"
	"strings"
	"time"
)

// Bounds of a lane. A reader reads all lanes whenever one of them changes, so
// their bytes are what a change costs each process.
const (
	maxLaneBytes  = 2 << 10
	maxIdleLane   = 512              // bytes of one that may stay when nobody writes it
	maxLaneChunks = 8                // hints of one shard's log; who missed more reads that log
	maxLaneAge    = 10 * time.Second // of a hint, on the writer's clock, at the lane's next write
	maxDetail     = 768              // bytes, beside maxLaneBytes
)

// lane is a feed lane's record: how many writes it has had, and the names that
// the latest of them may have changed. They tell everything behind write number
// floor: who has read the lane up to there, or the whole state at that write's
// revision, has missed nothing; who has not must read all. They are hints, never
// facts (rule S13). A detail is what the same transaction wrote, and tells what a
// read of that record would have at that revision.
type lane struct {
	seq   int64 // of the latest write
	floor int64
	lost  Rev    // the revision of write number floor, or a later one
	hints []hint // the latest first
}

// hint is a name that a write of the lane may have changed.
type hint struct {
	seq    int64
	name   string
	detail string // only of the latest write; see Keys.detail
	// Of the write, as far as this process knows.
	rev Rev       // at the latest; 0 before it was written
	at  time.Time // at the earliest; zero if it was read
}

// with is the lane after one more write.
func (l lane) with(kind feedKind, names []string, now time.Time) lane {
	next := lane{seq: l.seq + 1, floor: l.floor, lost: l.lost}
	all := make([]hint, 0, len(names)+len(l.hints))
	for _, n := range names {
		all = append(all, hint{seq: next.seq, name: n, at: now})
	}
	all = append(all, l.hints...)
	later := make(map[string]int, len(all))
	size := 0
	for _, h := range all {
		if h.at.IsZero() {
			h.at = now
		}
		h.detail = ""
		group, most := kind.group(h.name)
		size += len(" 65535:") + len(h.name)
		full := size > maxLaneBytes || now.Sub(h.at) > maxLaneAge
		if n := later[group]; n > 0 && (full || n >= most) {
			size -= len(" 65535:") + len(h.name)
			continue // a later one tells of it
		}
		if full {
			next.floor, next.lost = h.seq, h.rev
			break
		}
		later[group]++
		next.hints = append(next.hints, h)
	}
	// A write of which some names are gone is as good as not told.
	for n := len(next.hints); n > 0 && next.hints[n-1].seq <= next.floor; n-- {
		next.hints = next.hints[:n-1]
	}
	return next
}

// detailed gives the name, which the latest write has, its detail.
func (l lane) detailed(name, detail string) lane {
	for i, h := range l.hints {
		if h.seq == l.seq && h.name == name {
			l.hints[i].detail = detail
		}
	}
	return l
}

// written is the lane once its latest write has been applied at a revision. What
// is not known of its earlier ones, because the lane was read, happened before.
func (l lane) written(rev Rev) lane {
	if l.floor == l.seq {
		l.lost = rev
	}
	for i := range l.hints {
		if l.hints[i].rev == 0 {
			l.hints[i].rev = rev
		}
	}
	return l
}

// encode writes one line: format, number of writes, floor, lost (0 if it is the
// revision of this very write), and the names, each behind a colon and, unless it
// is of the same write as the one before, the number of writes since; and behind it
// its detail.
func (l lane) encode() []byte {
	b := make([]byte, 0, 256)
	b = append(b, format+" "...)
	b = strconv.AppendInt(b, l.seq, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, l.floor, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(l.lost), 10)
	last := int64(-1)
	for _, h := range l.hints {
		b = append(b, ' ')
		if h.seq != last {
			b = strconv.AppendInt(b, l.seq-h.seq, 10)
			last = h.seq
		}
		b = append(b, ':')
		b = append(b, h.name...)
		if h.detail != "" {
			b = append(b, " ="...)
			b = append(b, h.detail...)
		}
	}
	return b
}

// decodeLane reads a lane's record. Its names are copies of the record's bytes, of
// which Keys.hinted has to make sense.
func decodeLane(p Pair) (lane, error) {
	l := line{rest: p.Value}
	if len(p.Value) > MaxRiderBytes {
		l.fail("too long")
	}
	if w := l.word(); l.reason == "" && string(w) != format {
		l.fail("unknown format")
	}
	v := lane{seq: l.number(), floor: l.number(), lost: Rev(l.number())}
	if v.seq < 1 || v.seq > maxCount || v.floor > v.seq || v.lost > p.Rev {
		l.fail("counts do not fit together")
	}
	for at := v.seq; l.reason == "" && len(l.rest) > 0; {
		word := string(l.word())
		ago, name, ok := strings.Cut(word, ":")
		if !ok {
			detail, is := strings.CutPrefix(word, "=")
			if n := len(v.hints); is && n > 0 && v.hints[n-1].seq == v.seq {
				v.hints[n-1].detail = detail
			}
			continue // else of a later version
		}
		if ago != "" {
			n, err := strconv.ParseInt(ago, 10, 64)
			if err != nil || n < 0 || v.seq-n > at {
				l.fail("the names are not in order")
			}
			at = v.seq - n
		}
		if name == "" || at <= v.floor {
			l.fail("a name is missing, or should not be there")
		}
		v.hints = append(v.hints, hint{seq: at, name: name})
	}
	if l.reason != "" {
		return lane{}, &CorruptError{Key: p.Key, Reason: l.reason}
	}
	return v.written(p.Rev), nil
}
