package driver

import (
	"strconv"
	"strings"
)

// MaxDamaged is how many damaged records one View names.
const MaxDamaged = 64

// maxDamagedText bounds, in bytes, what a DamagedError says about a record.
const maxDamagedText = 256

// DamagedError names a record of the store that cannot be read: no release writes
// such bytes, or it is longer than any. It matches ErrDamaged. What needs the record
// fails with it, and everything else goes on (D1). See Damaged.
type DamagedError struct {
	Key   string  `json:"key"`             // as the store's own tools name it; printable, at most 256 bytes
	Shard ShardID `json:"shard,omitempty"` // whose record, head or log it is; empty for another's
	Why   string  `json:"why"`             // printable, at most 256 bytes
}

// Damaged makes a DamagedError of a key that may be anything. What cannot be printed
// is quoted, what is too long is cut, and a shard without a valid name is left out.
func Damaged(key string, shard ShardID, why string) *DamagedError {
	if CheckShard(shard) != nil {
		shard = ""
	}
	return &DamagedError{Key: printable(key), Shard: shard, Why: printable(why)}
}

func (e *DamagedError) Error() string {
	return "tenure: the record " + e.Key + " is damaged: " + e.Why + ": restore it from a backup, or remove it if it is nobody's"
}

// Is makes a DamagedError match ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

func printable(s string) string {
	if len(s) <= maxDamagedText && strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return strings.Clone(s) // not a part of a record
	}
	quoted := strconv.QuoteToASCII(s[:min(len(s), maxDamagedText)])
	if len(quoted) > maxDamagedText {
		quoted = quoted[:maxDamagedText-3] + "..."
	}
	return quoted
}

// MaxCount bounds the numbers of commits and entries, so that adding to one cannot
// overflow.
const MaxCount = 1 << 62

// CheckHead reports why no commit can have left such a head, or nothing. The zero
// Head is that of a shard without commits. For backends, of what a store holds.
func CheckHead(h Head) (why string) {
	switch {
	case h == Head{}:
	case h.Number < 1 || h.Number > MaxCount, h.Seq < 0 || h.Seq > MaxCount, h.Oldest < 1 || h.Oldest-1 > h.Seq,
		h.Token < 1, h.Nonce == 0:
		return "its counts do not fit together"
	}
	return ""
}
