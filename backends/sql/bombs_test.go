package sql

import (
	"context"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

// TestBombs is not parallel: it looks at the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "cuts", Bytes: sqlschema.Width("cuts"), Decode: func(_ context.Context, data []byte) {
		c := &chunk{first: 1, last: 10}
		c.check(data, 0)
	}})
}
