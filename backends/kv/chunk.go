package kv

import (
	"encoding/binary"

	"github.com/tenure-go/tenure/core/driver"
)

// chunk is a record that contains all entries appended to a shard's log by one commit. A group
// commit of a thousand entries needs only one key in the store. A reader sees either all of a
// commit's entries or none. Because the record's key contains the last entry's number, entry n is
// in the first chunk whose key is at or after n's.
type chunk struct {
	entries []driver.Entry // never empty
}

func (c chunk) last() driver.Seq { return c.entries[len(c.entries)-1].Seq }

const (
	chunkFormat = 1
	maxEntries  = 1 << 15 // of a chunk: an empty entry takes 1 byte in the store, and 64 in memory
)

// encodeChunk encodes the format, token, write number and entry count, followed by each payload
// with its length. Numbers are unsigned varints.
func encodeChunk(token driver.Token, number driver.WriteNo, payloads [][]byte) []byte {
	size := 1 + 4*binary.MaxVarintLen64
	for _, p := range payloads {
		size += binary.MaxVarintLen32 + len(p)
	}
	b := make([]byte, 0, size)
	b = append(b, chunkFormat)
	b = binary.AppendUvarint(b, uint64(token))
	b = binary.AppendUvarint(b, uint64(number))
	b = binary.AppendUvarint(b, uint64(len(payloads)))
	for _, p := range payloads {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}

// decodeChunk decodes a chunk whose last entry has the given number. The payloads alias the
// record's bytes. Whatever the record contains, its length and maxEntries limit the allocated
// memory.
func decodeChunk(p Pair, shard driver.ShardID, last driver.Seq) (chunk, error) {
	corrupt := func(reason string) (chunk, error) {
		return chunk{}, corrupt(p.Key, reason)
	}
	head, b, reason := chunkHead(p.Value, last)
	if reason != "" {
		return corrupt(reason)
	}
	token, number, count := driver.Token(head[0]), driver.WriteNo(head[1]), head[2]
	c := chunk{entries: make([]driver.Entry, count)}
	for i := range c.entries {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return corrupt("an entry is cut short")
		}
		end := used + int(n)
		c.entries[i] = driver.Entry{
			Shard: shard, Seq: last - driver.Seq(count) + driver.Seq(i) + 1,
			Token: token, Number: number, Payload: b[used:end:end],
		}
		b = b[end:]
	}
	return c, nil
}

// chunkHead decodes a chunk's token, write number and entry count, and returns the remaining bytes.
func chunkHead(b []byte, last driver.Seq) (head [3]int64, rest []byte, reason string) {
	if len(b) == 0 || b[0] != chunkFormat {
		return head, nil, "unknown format"
	}
	b = b[1:]
	for i := range head {
		n, used := binary.Uvarint(b)
		if used <= 0 || n == 0 || n > 1<<63-1 {
			return head, nil, "a number is missing"
		}
		head[i], b = int64(n), b[used:]
	}
	if count := head[2]; count > min(maxEntries, int64(len(b)), int64(last)) {
		return head, nil, "more entries than bytes, numbers, or operations of a commit"
	}
	return head, b, ""
}
