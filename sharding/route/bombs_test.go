package route

import (
	"bytes"
	"context"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel: it looks at the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "owners", Bytes: maxMap, Lists: []string{"shards", "members"}, Decode: func(_ context.Context, data []byte) {
		_, _ = decodeOwners(bytes.NewReader(data))
	}})
}
