package kv

import (
	"context"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel: it looks at the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t,
		bombs.Decoder{Name: "member", Bytes: maxJSONRecord, Lists: []string{"meta", "member.meta"}, Decode: func(_ context.Context, data []byte) {
			_, _ = decodeMember(Pair{Key: "k", Value: data, Rev: 1}, "s")
		}},
		bombs.Decoder{Name: "removed", Bytes: maxJSONRecord, Lists: []string{"sessions"}, Decode: func(_ context.Context, data []byte) {
			decodeRemoved(Pair{Key: "k", Value: data, Rev: 1})
		}})
}
