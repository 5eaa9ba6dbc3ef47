package follower

import (
	"context"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel: it looks at the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "manifest", Bytes: maxManifest, Lists: []string{"current", "next"}, Decode: func(_ context.Context, data []byte) {
		_, _ = decodeManifest(data)
	}})
}
