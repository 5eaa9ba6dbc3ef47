package kv

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	member, err := encodeJSON(memberRecord{Format: jsonFormat, Member: driver.Member{Session: "s", Node: "n", TTL: time.Second}})
	removed, failed := encodeJSON(removedRecord{Format: jsonFormat, Sessions: []driver.SessionID{"s"}})
	identified, noID := encodeJSON(identity{Format: jsonFormat, ID: "a"})
	node, noNode := encodeJSON(nodeRecord{Format: jsonFormat, Sessions: []driver.SessionID{"s"}})
	if err = errors.Join(err, failed, noID, noNode); err != nil {
		t.Fatal(err)
	}
	bombs.Test(t,
		bombs.Decoder{Name: "member", Bytes: maxJSONRecord, Lists: []string{"meta", "member.meta"}, Good: member,
			Decode: func(data []byte) error {
				_, err := decodeMember(Pair{Key: "k", Value: data, Rev: 1}, "s")
				return err
			}},
		bombs.Decoder{Name: "removed", Bytes: maxJSONRecord, Lists: []string{"sessions"}, Good: removed, Decode: func(data []byte) error {
			if r := decodeRemoved(Pair{Key: "k", Value: data, Rev: 1}); len(r.Sessions) > 0 {
				return nil
			}
			return errors.New("no sessions")
		}},
		bombs.Decoder{Name: "identity", Bytes: maxJSONRecord, Lists: []string{"id"}, Good: identified, Decode: func(data []byte) error {
			_, err := decodeIdentity(Pair{Key: "k", Value: data, Rev: 1})
			return err
		}},
		bombs.Decoder{Name: "node", Bytes: maxJSONRecord, Lists: []string{"sessions", "superseded"}, Good: node,
			Decode: func(data []byte) error {
				_, err := decodeNode(Pair{Key: "k", Value: data, Rev: 1})
				return err
			}},
		bombs.Decoder{Name: "chunk", Bytes: 1 << 20, Good: encodeChunk(1, 1, [][]byte{nil}), More: [][]byte{
			encodeChunk(1, 1, make([][]byte, 1<<20-16)),
			encodeChunk(1, 1, make([][]byte, maxEntries+1)),
			append(encodeChunk(1, 1, make([][]byte, maxEntries-1))[:8], bytes.Repeat([]byte{0xff}, 1<<20-8)...),
		}, Decode: func(data []byte) error {
			_, err := decodeChunk(Pair{Key: "k", Value: data, Rev: 1}, "s", 1<<40)
			return err
		}},
		bombs.Decoder{Name: "shard", Bytes: 1 << 20, Good: []byte("1 free 7"), More: lines("1 held s 7 @", "1 free 7 ="),
			Decode: func(data []byte) error {
				_, err := decodeShard(Pair{Key: "k", Value: data, Rev: 7}, 0)
				return err
			}},
		bombs.Decoder{Name: "head", Bytes: 1 << 20, Good: encodeHead(driver.Head{Number: 1, Seq: 1, Oldest: 1, Token: 1, Nonce: 1}),
			More: lines("1 1 1 1 1 1"),
			Decode: func(data []byte) error {
				_, err := decodeHead(Pair{Key: "k", Value: data, Rev: 1})
				return err
			}})
}

// lines returns records of the maximum length that begin with the given texts.
func lines(begin ...string) (all [][]byte) {
	for _, b := range begin {
		all = append(all, append([]byte(b), bytes.Repeat([]byte(" x"), 1<<19-len(b))...))
	}
	return all
}
