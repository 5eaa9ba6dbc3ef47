package changelog

import (
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvrecord"
)

// These constants limit a change log. When a change log changes, readers read all change logs, so
// these limits determine what a change costs each process.
const (
	maxBytes  = 2 << 10
	maxIdle   = 512              // bytes of a log that stays while no process writes it
	maxChunks = 8                // entries of one shard's log; readers that are further behind read the log itself
	maxAge    = 10 * time.Second // of an entry at the next write, by the writer's clock
	maxInline = 768              // bytes of an inline value, in addition to maxBytes
)

// changeLog is the content of a change log's record: the number of its writes, and the names of the
// records that the latest writes may have changed. A changeLog contains the entries of all writes
// after write number floor. A reader has missed nothing if it has read the change log up to the
// floor, or the whole state at the floor's revision. Other readers must read all records. Entries
// are only hints (rule S13). An inline value was written in the same transaction as its entry, and
// equals the result of a read at that revision.
type changeLog struct {
	seq     int64 // of the latest write
	floor   int64
	lost    kv.Rev  // the revision of write number floor, or a later one
	entries []entry // the latest first
}

// entry is the name of a record that a write may have changed.
type entry struct {
	seq    int64 // of the write
	name   string
	inline string // only in entries of the latest write; see inlineValue
	// These fields are the write's revision and time, if this process knows them.
	rev kv.Rev    // an upper bound; 0 before the entry was written
	at  time.Time // a lower bound; zero if the entry was read
}

// The result is the change log with one more write.
func (l changeLog) with(k kind, names []string, now time.Time) changeLog {
	next := changeLog{seq: l.seq + 1, floor: l.floor, lost: l.lost}
	all := make([]entry, 0, len(names)+len(l.entries))
	for _, n := range names {
		all = append(all, entry{seq: next.seq, name: n, at: now})
	}
	all = append(all, l.entries...)
	later := make(map[string]int, len(all))
	size := 0
	for _, e := range all {
		if e.at.IsZero() {
			e.at = now
		}
		e.inline = ""
		group, most := k.group(e.name)
		size += len(" 65535:") + len(e.name)
		full := size > maxBytes || now.Sub(e.at) > maxAge
		if n := later[group]; n > 0 && (full || n >= most) {
			size -= len(" 65535:") + len(e.name)
			continue // a later one replaces it
		}
		if full {
			next.floor, next.lost = e.seq, e.rev
			break
		}
		later[group]++
		next.entries = append(next.entries, e)
	}
	// If some entries of a write were removed, the remaining entries of that write are useless.
	for n := len(next.entries); n > 0 && next.entries[n-1].seq <= next.floor; n-- {
		next.entries = next.entries[:n-1]
	}
	return next
}

// withInline adds the inline value to the latest write's entry for name.
func (l changeLog) withInline(name, value string) changeLog {
	for i, e := range l.entries {
		if e.seq == l.seq && e.name == name {
			l.entries[i].inline = value
		}
	}
	return l
}

// The result is the change log after its latest write was applied at revision rev. Earlier writes
// whose revision is unknown were applied before rev.
func (l changeLog) written(rev kv.Rev) changeLog {
	if l.floor == l.seq {
		l.lost = rev
	}
	for i := range l.entries {
		if l.entries[i].rev == 0 {
			l.entries[i].rev = rev
		}
	}
	return l
}

// encode writes one line: the format, the number of writes, the floor, lost (0 means the revision
// of this write), and the entries. An entry is a colon and a name. The entries of a write are
// together, and the number of later writes precedes the first of these entries. An inline value
// follows its entry.
func (l changeLog) encode() []byte {
	b := make([]byte, 0, 256)
	b = append(b, kvrecord.Format+" "...)
	b = strconv.AppendInt(b, l.seq, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, l.floor, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(l.lost), 10)
	last := int64(-1)
	for _, e := range l.entries {
		b = append(b, ' ')
		if e.seq != last {
			b = strconv.AppendInt(b, l.seq-e.seq, 10)
			last = e.seq
		}
		b = append(b, ':')
		b = append(b, e.name...)
		if e.inline != "" {
			b = append(b, " ="...)
			b = append(b, e.inline...)
		}
	}
	return b
}

// decode reads a change log's record. The names are copied from the record's bytes, and keyOf
// checks them.
func decode(p kv.Pair) (changeLog, error) {
	text := kvrecord.Line{Rest: p.Value}
	text.Format(MaxPiggybackBytes)
	l := changeLog{seq: text.Number(), floor: text.Number(), lost: kv.Rev(text.Number())}
	if l.seq < 1 || l.seq > driver.MaxCount || l.floor > l.seq || l.lost > p.Rev {
		text.Fail("counts do not fit together")
	}
	for at := l.seq; text.Reason == "" && len(text.Rest) > 0; {
		word := string(text.Word())
		ago, name, ok := strings.Cut(word, ":")
		if !ok {
			value, is := strings.CutPrefix(word, "=")
			if n := len(l.entries); is && n > 0 && l.entries[n-1].seq == l.seq {
				l.entries[n-1].inline = value
			}
			continue // otherwise from a later version
		}
		if ago != "" {
			n, err := strconv.ParseInt(ago, 10, 64)
			if err != nil || n < 0 || l.seq-n > at {
				text.Fail("the names are not in order")
			}
			at = l.seq - n
		}
		if name == "" || at <= l.floor {
			text.Fail("a name is missing, or should not be there")
		}
		l.entries = append(l.entries, entry{seq: at, name: name})
	}
	if text.Reason != "" {
		return changeLog{}, driver.Damaged(p.Key, "", text.Reason)
	}
	return l.written(p.Rev), nil
}
