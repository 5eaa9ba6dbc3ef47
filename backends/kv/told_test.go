package kv

import (
	"bytes"
	"testing"
)

// TestTold: what is told beside a shard's record is read back, by who knows of it,
// and the record is what it was for everybody else.
func TestTold(t *testing.T) {
	t.Parallel()
	keys := Keys{"a/b"}
	record := shardRecord{session: "s1", from: 7}.encode()
	head := Pair{Key: keys.Head("x"), Value: []byte("1 3 4 1 7 ff"), Rev: 12}
	for _, known := range []Pair{head, {Key: head.Key}} {
		txn := Txn{Ops: []Op{{Key: keys.Shard("x"), Value: record}}, Known: []Pair{known}}
		c := Change{Key: keys.Shard("x"), Value: txn.Told(), Rev: 13}
		if got := ToldWith(&c); len(got) != 1 || got[0].Key != known.Key || got[0].Rev != known.Rev || !bytes.Equal(got[0].Value, known.Value) {
			t.Errorf("told %+v, got %+v", known, got)
		}
		if r, err := decodeShard(Pair{Key: c.Key, Value: c.Value, Rev: c.Rev}); err != nil || r.session != "s1" || r.from != 7 {
			t.Errorf("the record is %+v, %v", r, err)
		}
		c.Rev = known.Rev // no record can tell of what is not older
		if got := ToldWith(&c); got != nil {
			t.Errorf("at revision %d: %+v", c.Rev, got)
		}
	}
	for _, c := range []Change{
		{Key: keys.Shard("x"), Value: record, Rev: 13},
		{Key: keys.Shard("x"), Rev: 13, Deleted: true},
		{Key: keys.Shard("x"), Value: append(bytes.Clone(record), " = -1 x"...), Rev: 13},
		{Key: keys.Shard("x"), Value: append(bytes.Clone(record), " = many"...), Rev: 13},
		{Key: keys.Member("s1"), Value: []byte(`{"meta":{"a":" = 1 x"}}`), Rev: 13},
		{Key: keys.Chunk("x", 3), Value: []byte("1 = 1 x"), Rev: 13},
	} {
		if got := ToldWith(&c); got != nil {
			t.Errorf("%s %q tells %+v", c.Key, c.Value, got)
		}
	}
	member := Txn{Ops: []Op{{Key: keys.Member("s1"), Value: record}}, Known: []Pair{head}}
	if got := member.Told(); !bytes.Equal(got, record) {
		t.Errorf("a member's record became %q", got)
	}
}
