package driver

import (
	"strconv"
	"strings"
)

// maxDamagedText limits the bytes of each text in a DamagedError.
const maxDamagedText = 256

// DamagedError names a record in the store that cannot be read. No release writes such bytes, or
// the record is longer than any valid record. It matches ErrDamaged. Calls that need the record
// fail with it, and all other calls continue to work (D1). See Damaged.
type DamagedError struct {
	Key   string  `json:"key"`             // the key in the store's own tools; printable, at most 256 bytes
	Shard ShardID `json:"shard,omitempty"` // the shard of the record, head or log; empty for other records
	Why   string  `json:"why"`             // printable, at most 256 bytes
}

// Damaged returns a DamagedError for a key, which may contain any bytes. It quotes text that cannot
// be printed, cuts text that is too long, and leaves out a shard without a valid name.
func Damaged(key string, shard ShardID, why string) *DamagedError {
	if CheckShard(shard) != nil {
		shard = ""
	}
	return &DamagedError{Key: printable(key), Shard: shard, Why: printable(why)}
}

func (e *DamagedError) Error() string {
	return "tenure: the record " + e.Key + " is damaged: " + e.Why + ": restore it from a backup, or remove it if it is nobody's"
}

// Is reports whether target is ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

func printable(s string) string {
	if len(s) <= maxDamagedText && strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return strings.Clone(s) // a copy, so that it does not keep the whole record in memory
	}
	quoted := strconv.QuoteToASCII(s[:min(len(s), maxDamagedText)])
	if len(quoted) > maxDamagedText {
		quoted = quoted[:maxDamagedText-3] + "..."
	}
	return quoted
}

// MaxCount limits the numbers of commits and entries, so that adding to one cannot overflow.
const MaxCount = 1 << 62

// CheckHead returns the reason why no commit can have left a stored head h, or "" if one can. The
// zero Head belongs to a shard without commits. CheckHead is for backends.
func CheckHead(h Head) (why string) {
	switch {
	case h == Head{}:
	case h.Number < 1 || h.Number > MaxCount, h.Seq < 0 || h.Seq > MaxCount, h.Oldest < 1 || h.Oldest-1 > h.Seq,
		h.Token < 1, h.Nonce == 0:
		return "its counts do not fit together"
	}
	return ""
}
