package kv

import (
	"bytes"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/kvrecord"
)

// TestKnownHead: a process learns the head that follows a shard's record in a watched change. Other
// readers ignore that head.
func TestKnownHead(t *testing.T) {
	t.Parallel()
	keys := kvkeys.Keys("a/b")
	held := shardRecord{Session: "s1", From: 7}.Encode()
	head := driver.Head{Number: 3, Seq: 4, Oldest: 1, Token: 7, Nonce: 255}
	learned := func(c Change) (lease, bool) {
		b := &Backend{keys: keys}
		b.leases.init()
		b.learn(c)
		return b.leases.get("x")
	}
	for rev, known := range map[Rev]driver.Head{12: head, 0: {}} {
		value := kvrecord.AppendHead(bytes.Clone(held), knownHead(lease{head: known, headRev: rev}))
		c := Change{Key: keys.Shard("x"), Value: value, Rev: 13}
		owner := driver.Owner{Session: "s1", Token: 13}
		if got, ok := learned(c); !ok || got != (lease{owner: owner, rev: 13, head: known, headRev: rev, headKnown: true}) {
			t.Errorf("%q teaches %+v, %v", c.Value, got, ok)
		}
		r, err := parseShard(Pair{Key: c.Key, Value: c.Value, Rev: c.Rev})
		if err != nil || r.Session != "s1" || r.From != 7 {
			t.Errorf("the record is %+v, %v", r, err)
		}
		if shard, h, ok := kvrecord.CutHead(c.Value); !ok || !bytes.Equal(shard, held) || Rev(h.Rev) != rev {
			t.Errorf("%q is cut into %q and %+v, %v", c.Value, shard, h, ok)
		}
		c.Rev = rev // a head appended to a record must be older than the record
		if got, ok := learned(c); ok {
			t.Errorf("at revision %d: %+v", c.Rev, got)
		}
	}
	for _, c := range []Change{
		{Key: keys.Shard("x"), Value: held, Rev: 13},
		{Key: keys.Shard("x"), Rev: 13, Deleted: true},
		{Key: keys.Shard("x"), Value: append(bytes.Clone(held), " = -1 x"...), Rev: 13},
		{Key: keys.Shard("x"), Value: append(bytes.Clone(held), " = many"...), Rev: 13},
		{Key: keys.Shard("x"), Value: append(bytes.Clone(held), " = 12 x"...), Rev: 13},
		{Key: keys.Member("s1"), Value: []byte(`{"meta":{"a":" = 1 x"}}`), Rev: 13},
		{Key: keys.Member("x"), Value: append(bytes.Clone(held), " = 0 "...), Rev: 13},
		{Key: keys.Chunk("x", 3), Value: []byte("1 = 1 x"), Rev: 13},
	} {
		if got, ok := learned(c); ok {
			t.Errorf("%s %q teaches %+v", c.Key, c.Value, got)
		}
	}
}
