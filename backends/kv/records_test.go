package kv

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/kvrecord"
)

func TestShardRecordRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range []shardRecord{
		{Session: "a", From: 0},
		{Session: "s-1.x", From: math.MaxInt64},
		{Token: 1},
		{Token: math.MaxInt64},
	} {
		got, err := parseShard(Pair{Value: want.Encode(), Rev: 1})
		if err != nil || got != want {
			t.Errorf("%q decodes to %+v, %v; want %+v", want.Encode(), got, err, want)
		}
		got, err = parseShard(Pair{Value: append(want.Encode(), " later"...), Rev: 1})
		if err != nil || got != want {
			t.Errorf("an unknown field is not ignored: %+v, %v", got, err)
		}
	}
}

func TestShardRecordCorrupt(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "1", "1 held", "1 held a", "1 held a x", "1 held a -1", "1 held _a 1", "1 held a/b 1", "1  held a 1",
		"1 free", "1 free 0", "1 free 9223372036854775808", "2 held a 1", "1 kept a 1", "1 held a 1" + strings.Repeat(" ", kvrecord.MaxLen),
	} {
		if r, err := parseShard(Pair{Key: "k", Value: []byte(bad), Rev: 1}); !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("%q decodes to %+v, %v; want ErrDamaged", bad, r, err)
		}
	}
}

// TestShardRecordImpossible: a token above the token of the record itself was never granted.
func TestShardRecordImpossible(t *testing.T) {
	t.Parallel()
	for text, damaged := range map[string]bool{
		"1 free 107": false, "1 free 108": true, "1 held a 106": false, "1 held a 107": true, "1 free 9223372036854775807": true,
	} {
		_, err := decodeShard(Pair{Key: "n/!state/shard/s", Value: []byte(text), Rev: 7}, 100)
		if d, _ := errors.AsType[*driver.DamagedError](err); damaged != (d != nil) || damaged && d.Shard != "s" {
			t.Errorf("%q at revision 7 above 100: %v; want it damaged: %v", text, err, damaged)
		}
	}
}

func TestHeadRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range []driver.Head{
		{Number: 1, Seq: 0, Oldest: 1, Nonce: 1, Token: 1},
		{Number: driver.MaxCount, Seq: driver.MaxCount, Oldest: driver.MaxCount + 1, Nonce: math.MaxUint64, Token: math.MaxInt64},
	} {
		got, err := decodeHead(Pair{Value: encodeHead(want), Rev: 1})
		if err != nil || got != want {
			t.Errorf("%q decodes to %+v, %v; want %+v", encodeHead(want), got, err, want)
		}
	}
	if got, err := decodeHead(Pair{}); err != nil || got != (driver.Head{}) {
		t.Errorf("no record decodes to %+v, %v; want the zero head", got, err)
	}
	for _, bad := range []string{"1 0 0 1 1 1", "1 1 5 7 1 1", "1 1 0 0 1 1", "1 1 1 1 0 1", "1 1 1 1 1"} {
		if h, err := decodeHead(Pair{Value: []byte(bad), Rev: 1}); !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("%q decodes to %+v, %v; want ErrDamaged", bad, h, err)
		}
	}
}

func FuzzShard(f *testing.F) {
	f.Add([]byte("1 held a 12"))
	f.Add([]byte("1 free 12"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseShard(Pair{Value: b, Rev: 1})
		if err != nil {
			if !errors.Is(err, driver.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		if again, err := parseShard(Pair{Value: r.Encode(), Rev: 1}); err != nil || again != r {
			t.Fatalf("%q decodes to %+v, which is written and read as %+v, %v", b, r, again, err)
		}
	})
}

func FuzzHead(f *testing.F) {
	f.Add([]byte("1 3 2 1 7 ff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHead(Pair{Value: b, Rev: 1})
		if err != nil {
			if !errors.Is(err, driver.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		if again, err := decodeHead(Pair{Value: encodeHead(h), Rev: 1}); err != nil || again != h {
			t.Fatalf("%q decodes to %+v, which is written and read as %+v, %v", b, h, again, err)
		}
	})
}

func FuzzChunk(f *testing.F) {
	f.Add(encodeChunk(7, 3, [][]byte{[]byte("a"), nil, []byte("ccc")}), int64(9))
	f.Add([]byte{1, 1, 1, 255, 255, 255, 255, 15}, int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, b []byte, last int64) {
		c, err := decodeChunk(Pair{Value: b}, "s", driver.Seq(last))
		if err != nil {
			if !errors.Is(err, driver.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		if len(c.entries) == 0 || c.last() != driver.Seq(last) || c.entries[0].Seq < 1 {
			t.Fatalf("%d entries up to %d, want up to %d", len(c.entries), c.last(), last)
		}
		payloads := make([][]byte, len(c.entries))
		for i, e := range c.entries {
			payloads[i] = e.Payload
		}
		again, err := decodeChunk(Pair{Value: encodeChunk(c.entries[0].Token, c.entries[0].Number, payloads)}, "s", driver.Seq(last))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("written and read again: %+v, %v; want %+v", again, err, c)
		}
	})
}

// TestOlderMember: a record from a release without updates describes a member without updates.
func TestOlderMember(t *testing.T) {
	t.Parallel()
	value := `{"v":1,"member":{"session":"a","node":"n","ttl":1000000000,"priority":-1,"weight":7,"meta":{"k":"v"},"supersede":true}}`
	want := driver.Member{Session: "a", Node: "n", TTL: time.Second, Supersede: true,
		MemberState: driver.MemberState{Priority: -1, Weight: 7, Meta: map[string]string{"k": "v"}}}
	m, err := decodeMember(Pair{Key: "k", Value: []byte(value), Rev: 1}, "a")
	if err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("read as %+v, %v; want %+v", m, err, want)
	}
	if b, err := encodeJSON(memberRecord{Format: jsonFormat, Member: want}); err != nil || string(b) != value {
		t.Errorf("written as %s, %v", b, err)
	}
}

func FuzzJSONRecords(f *testing.F) {
	id, _ := encodeJSON(identity{Format: 1, ID: "x", Base: 5})
	node, _ := encodeJSON(nodeRecord{}.with("a", false))
	m, _ := encodeJSON(memberRecord{Format: 1, Member: driver.Member{Session: "a", Node: "n", TTL: time.Second}})
	for _, seed := range [][]byte{id, node, m} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := Pair{Key: "k", Value: b, Rev: 1}
		if id, err := decodeIdentity(p); err == nil && (id.ID == "" || id.Base < 0) {
			t.Fatalf("%q is accepted as the identity %+v", b, id)
		}
		if n, err := decodeNode(p); err == nil {
			for _, s := range n.Sessions {
				if err := driver.CheckSession(s); err != nil {
					t.Fatal(err)
				}
			}
		}
		if m, err := decodeMember(p, "a"); err == nil {
			if err := driver.CheckMember(m, driver.Limits{}); err != nil || m.Session != "a" {
				t.Fatalf("%q is accepted as %+v: %v", b, m, err)
			}
		}
	})
}

func FuzzCursorAndKey(f *testing.F) {
	b := &Backend{instance: "I", keys: kvkeys.Keys("n/s")}
	f.Add(string(b.cursor(12)))
	f.Add(b.keys.Chunk("s", 12))
	f.Fuzz(func(t *testing.T, s string) {
		if seq, ok := b.position(driver.Cursor(s)); ok && seq < 0 {
			t.Fatalf("cursor %q is position %d", s, seq)
		}
		if shard, last, ok := b.keys.SplitChunk(s); ok {
			if again := b.keys.Chunk(shard, last); !strings.EqualFold(again, s) {
				t.Fatalf("%q is taken for %q", s, again)
			}
		}
	})
}

func TestNodeRecordRemembersTheLast(t *testing.T) {
	t.Parallel()
	n := nodeRecord{}
	for i := range 3 * maxNodeSessions {
		n = n.with(driver.SessionID(strings.Repeat("x", i+1)), false)
	}
	if len(n.Sessions) != maxNodeSessions || len(n.last()) != 3*maxNodeSessions {
		t.Errorf("%d sessions, the last has %d bytes; want %d and %d", len(n.Sessions), len(n.last()), maxNodeSessions, 3*maxNodeSessions)
	}
}

func TestKeysDoNotOverlap(t *testing.T) {
	t.Parallel()
	a, err := kvkeys.New("a")
	if err != nil {
		t.Fatal(err)
	}
	ab, err := kvkeys.New("a/b")
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{a.State(), a.Beats(), a.Heads(), a.Logs(), a.Log("1"), a.Items("1")} {
		for _, key := range []string{ab.Shard("1"), ab.Beat("1"), ab.Head("1"), ab.Chunk("1", 1), ab.Item("1", "k"), a.Chunk("10", 1), a.Item("10", "k")} {
			if strings.HasPrefix(key, prefix) && !strings.HasPrefix(prefix, "a/!log/1") && key != a.Chunk("10", 1) {
				t.Errorf("prefix %q matches %q", prefix, key)
			}
		}
	}
	if strings.HasPrefix(a.Chunk("10", 1), a.Log("1")) {
		t.Errorf("the log of shard 1 has the entries of shard 10")
	}
	if bytes.Compare([]byte(a.Chunk("1", 9)), []byte(a.Chunk("1", 16))) >= 0 {
		t.Errorf("chunk keys are not in the order of their numbers")
	}
	if _, err := kvkeys.New("a//b"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("namespace a//b: %v; want ErrInvalid", err)
	}
}
