package engine

import (
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// A cursor contains the store's identity and a list of numbers. The identity reveals a cursor from
// another store. Observe's cursor contains the base and revision of the data, and the revision of
// the roster, because data and roster have separate histories. TailLog's cursor contains the
// position in each bucket.
func (b *Backend) cursor(kind string, at ...int64) driver.Cursor {
	text := append(make([]byte, 0, 64), kind...)
	text = append(append(text, ':'), b.id...)
	for _, n := range at {
		text = strconv.AppendInt(append(text, ':'), n, 36)
	}
	return driver.Cursor(text)
}

// parseCursor returns the numbers in a cursor from this namespace. For any other bytes, it returns
// false.
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

// bucketOf returns the tail counter that orders a shard's entries. A shard's counter never changes.
func bucketOf(shard driver.ShardID, buckets int64) int64 {
	if buckets == 1 {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(shard))
	return int64(h.Sum32()) % buckets
}
