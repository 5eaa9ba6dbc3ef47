package kvrecord

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "shard", Bytes: 1 << 20, Good: Shard{Session: "s", From: 7}.Encode(),
		Decode: func(data []byte) error {
			if _, reason := ParseShard(data); reason != "" {
				return errors.New(reason)
			}
			return nil
		}, More: [][]byte{append([]byte("1 held s 7 @"), bytes.Repeat([]byte("x"), 1<<20-12)...)}})
}
