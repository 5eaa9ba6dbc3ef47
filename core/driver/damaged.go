package driver

import (
	"strconv"
	"strings"
)

// maxDamagedText is the maximum size, in bytes, of each text field of a DamagedError.
const maxDamagedText = 256

// DamagedError reports a record in the store that cannot be read. The record contains bytes that no
// release of Tenure writes, or is longer than any valid record. Calls that need the record fail
// with this error, and all other calls continue to work (D1). DamagedError matches ErrDamaged. See
// Damaged.
type DamagedError struct {
	Key   string  `json:"key"`             // the key in the store's own tools; printable, at most 256 bytes
	Shard ShardID `json:"shard,omitempty"` // the shard of the record, head or log; empty for other records
	Why   string  `json:"why"`             // the reason; printable, at most 256 bytes
}

// Damaged returns a DamagedError for a key, which may contain any bytes. Damaged quotes unprintable
// text, truncates text that is too long, and omits a shard whose name is invalid.
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
		return strings.Clone(s) // copied, so that the whole record is not kept in memory
	}
	quoted := strconv.QuoteToASCII(s[:min(len(s), maxDamagedText)])
	if len(quoted) > maxDamagedText {
		quoted = quoted[:maxDamagedText-3] + "..."
	}
	return quoted
}

// MaxCount limits the numbers of commits and entries, so that adding to them cannot overflow.
const MaxCount = 1 << 62

// CheckHead returns the reason why no commit can have written h, or "" if h is valid. The zero
// Head, which a shard without commits has, is valid. Backends call CheckHead.
func CheckHead(h Head) (why string) {
	switch {
	case h == Head{}:
	case h.Number < 1 || h.Number > MaxCount, h.Seq < 0 || h.Seq > MaxCount, h.Oldest < 1 || h.Oldest-1 > h.Seq,
		h.Token < 1, h.Nonce == 0:
		return "its counts do not fit together"
	}
	return ""
}
