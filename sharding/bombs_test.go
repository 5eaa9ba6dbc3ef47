package sharding

import (
	"math/rand/v2"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t,
		bombs.Decoder{Name: "note", Bytes: maxNote, Lists: []string{"gave"}, Good: []byte(`{"map":1}`), Decode: func(data []byte) error {
			_, err := readNote("s", &core.Item{Key: noteKey, Value: data})
			return err
		}},
		bombs.Decoder{Name: "report", Bytes: maxReport, Good: loadedReport(rand.New(rand.NewPCG(1, 1)), 2, true).encode(maxReport), Decode: func(data []byte) error {
			_, err := decodeReport(data)
			return err
		}},
		bombs.Decoder{Name: "plan", Bytes: 1 << 20, Good: (&planChange{Number: 1}).body(), Decode: func(data []byte) error {
			_, err := decode(1, data)
			return err
		}})
}
