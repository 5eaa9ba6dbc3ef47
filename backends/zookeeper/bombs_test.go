package zookeeper

import (
	"errors"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "marker", Bytes: maxIdentity, Lists: []string{"id", "x"}, Good: []byte(`{"v":1,"id":"a"}`),
		Decode: func(data []byte) error {
			if marker(data) == "" {
				return errors.New("no marker")
			}
			return nil
		}})
}
