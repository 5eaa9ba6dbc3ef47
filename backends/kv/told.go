package kv

import (
	"bytes"
	"strconv"
	"strings"
)

// toldMark separates a shard's record from what its writer tells beside it: the head
// that a successor's first commit compares, as the writer knew it. Readers of the
// record ignore it, and it decides nothing.
const toldMark = " = "

const (
	shardsPart = "/!state/shard/"
	headsPart  = "/!head/"
)

// Told is the value of the transaction's first operation and, behind a shard's
// record, what [Txn.Known] says: for a store whose watch delivers values, and that
// gives changes to [ToldWith].
func (t *Txn) Told() []byte {
	v := t.Ops[0].Value
	if len(t.Known) != 1 || !strings.Contains(t.Ops[0].Key, shardsPart) {
		return v
	}
	v = append(bytes.Clone(v), toldMark...)
	v = strconv.AppendInt(v, int64(t.Known[0].Rev), 10)
	return append(append(v, ' '), t.Known[0].Value...)
}

// ToldWith is what the writer of a watched change told beside it; nil for nothing.
func ToldWith(c *Change) []Pair {
	ns, shard, ok := strings.Cut(c.Key, shardsPart)
	if !ok {
		return nil
	}
	_, rest, ok := bytes.Cut(c.Value, []byte(toldMark))
	digits, value, _ := bytes.Cut(rest, []byte{' '})
	rev, err := strconv.ParseInt(string(digits), 10, 64)
	if !ok || err != nil || rev < 0 || Rev(rev) >= c.Rev {
		return nil
	}
	return []Pair{{Key: ns + headsPart + shard, Value: value, Rev: Rev(rev)}}
}
