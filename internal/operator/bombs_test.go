package operator

import (
	"context"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel: it looks at the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "stop", Bytes: control.MaxRecord, Lists: []string{"sessions"}, Decode: func(_ context.Context, data []byte) {
		_, _ = decode(&core.Item{Key: "rule/stop/a", Value: data})
	}})
}
