package control

import (
	"context"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel: it looks at the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "rule", Bytes: MaxRecord, Lists: []string{"sessions"}, Decode: func(_ context.Context, data []byte) {
		_, _ = decode(&driver.Item{Key: "rule/drain/a", Value: data})
	}})
}
