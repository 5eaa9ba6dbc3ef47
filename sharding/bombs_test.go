package sharding

import (
	"context"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel: it looks at the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t,
		bombs.Decoder{Name: "note", Bytes: maxNote, Lists: []string{"gave"}, Decode: func(_ context.Context, data []byte) {
			_, _ = readNote("s", &core.Item{Key: noteKey, Value: data})
		}},
		bombs.Decoder{Name: "report", Bytes: maxReport, Decode: func(_ context.Context, data []byte) { _, _ = decodeReport(data) }},
		bombs.Decoder{Name: "plan", Bytes: 1 << 20, Decode: func(_ context.Context, data []byte) { _, _ = decode(1, data) }})
}
