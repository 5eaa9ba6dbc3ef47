package control

import (
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "rule", Bytes: MaxRecord, Lists: []string{"sessions"}, Good: []byte(`{"kind":"drain","node":"a"}`), Decode: func(data []byte) error {
		_, err := decode(&driver.Item{Key: "rule/drain/a", Value: data})
		return err
	}})
}
