package engine

import (
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// A cursor is a list of numbers under the store's identity, so that a cursor of another store
// is recognized. Observe's cursor holds the base and revision of the data, and the revision of
// the roster, because the two have separate histories. TailLog's cursor holds the position in
// each bucket.
func (b *Backend) cursor(kind string, at ...int64) driver.Cursor {
	text := append(make([]byte, 0, 64), kind...)
	text = append(append(text, ':'), b.id...)
	for _, n := range at {
		text = strconv.AppendInt(append(text, ':'), n, 36)
	}
	return driver.Cursor(text)
}

// parseCursor returns the numbers of a cursor that this namespace made. It returns false for any
// other bytes.
func (b *Backend) parseCursor(kind string, c driver.Cursor, count int) ([]int64, bool) {
	rest, ok := strings.CutPrefix(string(c), kind+":"+b.id+":")
	if !ok || len(rest) > 14*count {
		return nil, false
	}
	parts := strings.Split(rest, ":")
	if len(parts) != count {
		return nil, false
	}
	at := make([]int64, count)
	for i, p := range parts {
		n, err := strconv.ParseInt(p, 36, 64)
		if err != nil || n < 0 && i > 0 {
			return nil, false
		}
		at[i] = n
	}
	return at, true
}

// bucketOf returns the tail counter that orders a shard's entries. It is permanent.
func bucketOf(shard driver.ShardID, buckets int64) int64 {
	if buckets == 1 {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(shard))
	return int64(h.Sum32()) % buckets
}
