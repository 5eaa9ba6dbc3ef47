package follower

import (
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "manifest", Bytes: maxManifest, Lists: []string{"current", "next"}, Good: []byte(`{"version":2}`), Decode: func(data []byte) error {
		_, err := decodeManifest(data)
		return err
	}})
}
