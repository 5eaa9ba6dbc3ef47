package operator

import (
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "stop", Bytes: control.MaxRecord, Lists: []string{"sessions"}, Good: []byte(`{"kind":"stop","node":"a","away":1,"expires":"2026-01-01T00:00:00Z"}`), Decode: func(data []byte) error {
		_, err := decode(&core.Item{Key: "rule/stop/a", Value: data})
		return err
	}})
}
