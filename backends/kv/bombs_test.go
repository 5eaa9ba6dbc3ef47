package kv

import (
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
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	bombs.Test(t,
		bombs.Decoder{Name: "member", Bytes: maxJSONRecord, Lists: []string{"meta", "member.meta"}, Good: member, Decode: func(data []byte) error {
			_, err := decodeMember(Pair{Key: "k", Value: data, Rev: 1}, "s")
			return err
		}},
		bombs.Decoder{Name: "removed", Bytes: maxJSONRecord, Lists: []string{"sessions"}, Good: removed, Decode: func(data []byte) error {
			if r := decodeRemoved(Pair{Key: "k", Value: data, Rev: 1}); len(r.Sessions) > 0 {
				return nil
			}
			return errors.New("no sessions")
		}})
}
