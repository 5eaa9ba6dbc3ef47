package sql

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/tenure-go/tenure/core/driver"
)

// errDamaged is a row of a log that does not make sense.
var errDamaged = errors.New("its row in the table of logs is damaged")

// chunk is what one commit appended to a shard's log, in one row: however many
// entries a group commit has, the store writes one row and its keys. A chunk that
// is trimmed in part stays until the rest of it is trimmed.
type chunk struct {
	shard       driver.ShardID
	first, last driver.Seq
	token       driver.Token
	number      driver.WriteNo
	position    int64 // of the last entry, among those of the bucket
	cuts        []int // where each payload begins in payloads, and the last ends
	payloads    []byte
}

// scanChunk reads a row, and proves that entry can cut it.
func scanChunk(r Row) (*chunk, error) {
	c := new(chunk)
	var cuts []byte
	if err := r.Scan(&c.shard, &c.first, &c.last, &c.token, &c.number, &c.position, &cuts, &c.payloads); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(cuts, &c.cuts); err != nil {
		return nil, c.damaged("its cuts are not numbers")
	}
	if driver.CheckShard(c.shard) != nil {
		return nil, c.damaged("it is of no valid shard")
	}
	n := len(c.cuts) - 1
	if n < 1 || c.first < 1 || c.last == math.MaxInt64 || c.last-c.first != driver.Seq(n-1) || c.cuts[0] != 0 || c.cuts[n] != len(c.payloads) {
		return nil, c.damaged("its cuts do not fit")
	}
	for i := range n {
		if c.cuts[i] > c.cuts[i+1] {
			return nil, c.damaged("its cuts do not ascend")
		}
	}
	return c, nil
}

// entry is one of the chunk's. Its payload shares the chunk's memory.
func (c *chunk) entry(seq driver.Seq) driver.Entry {
	i := seq - c.first
	from, to := c.cuts[i], c.cuts[i+1]
	return driver.Entry{Shard: c.shard, Seq: seq, Token: c.token, Number: c.number, Payload: c.payloads[from:to:to]}
}

func (c *chunk) damaged(why string) error {
	return fmt.Errorf("tenure: shard %.128q, entries %d to %d: %w: %s: restore the database", c.shard, c.first, c.last, errDamaged, why)
}
