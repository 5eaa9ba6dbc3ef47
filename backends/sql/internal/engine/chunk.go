package engine

import (
	"fmt"
	"math"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/boundjson"
)

// chunk is one row with all entries that one commit appended to a shard's log. The store writes one
// row and its keys, regardless of the number of entries. A partly trimmed chunk stays until it is
// completely trimmed.
type chunk struct {
	shard       driver.ShardID
	first, last driver.Seq
	token       driver.Token
	number      driver.WriteNo
	position    int64 // position of the last entry in the bucket
	cuts        []int // start of each payload in payloads, and the end of the last
	payloads    []byte
}

// scanChunk reads and verifies a row.
func (b *Backend) scanChunk(r Row) (*chunk, error) {
	c := new(chunk)
	var cuts []byte
	var size int64
	err := r.Scan(&c.shard, &c.first, &c.last, &c.token, &c.number, &c.position, &cuts, &size, &c.payloads)
	if err != nil {
		return nil, err
	}
	if why := c.check(cuts, size); why != "" {
		return nil, b.damagedChunk(c, why)
	}
	return c, nil
}

// check verifies the chunk and decodes its cuts. If the chunk is invalid, check returns the reason.
func (c *chunk) check(cuts []byte, size int64) (why string) {
	if int64(len(c.payloads)) != size {
		return "its payloads are too many bytes, or not as many as its cuts say"
	}
	if c.first < 1 || c.last < c.first || c.last-c.first > driver.Seq(len(cuts)) {
		return "its cuts do not fit"
	}
	if err := boundjson.Unmarshal(cuts, len(cuts), int(c.last-c.first)+2, &c.cuts); err != nil {
		return "its cuts are not numbers"
	}
	if driver.CheckShard(c.shard) != nil {
		return whyName
	}
	if c.token < 1 || c.number < 1 {
		return "it has no token and number of a commit"
	}
	n := len(c.cuts) - 1
	if n < 1 || c.first < 1 || c.last == math.MaxInt64 || c.last-c.first != driver.Seq(n-1) || c.cuts[0] != 0 || c.cuts[n] != len(c.payloads) {
		return "its cuts do not fit"
	}
	for i := range n {
		if c.cuts[i] > c.cuts[i+1] {
			return "its cuts do not ascend"
		}
	}
	return ""
}

// entry returns one of the chunk's entries. The entry's payload shares the chunk's memory.
func (c *chunk) entry(seq driver.Seq) driver.Entry {
	i := seq - c.first
	from, to := c.cuts[i], c.cuts[i+1]
	return driver.Entry{Shard: c.shard, Seq: seq, Token: c.token, Number: c.number, Payload: c.payloads[from:to:to]}
}

func (b *Backend) damagedChunk(c *chunk, why string) error {
	return b.damaged("logs", fmt.Sprintf("%.128s, entries %d to %d", c.shard, c.first, c.last), c.shard, why)
}
