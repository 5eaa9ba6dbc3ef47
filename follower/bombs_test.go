package follower

import (
	"bytes"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "file", Bytes: 1 << 20, Good: encodeFile(Checkpoint{Store: "s"}), Decode: func(data []byte) error {
		_, err := decodeFile(data)
		return err
	}}, bombs.Decoder{Name: "position", Bytes: 1 << 20, Good: []byte("s:1:1"), More: [][]byte{bytes.Repeat([]byte(":"), 1<<20)},
		Decode: func(data []byte) error {
			_, err := ParsePosition(string(data))
			return err
		}}, bombs.Decoder{Name: "manifest", Bytes: maxManifest, Lists: []string{"current", "next"}, Good: []byte(`{"version":2}`),
		Decode: func(data []byte) error {
			_, err := decodeManifest(data)
			return err
		}})
}
