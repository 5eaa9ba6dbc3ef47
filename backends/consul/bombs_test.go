package consul

import (
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel: it looks at the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "refusal", Bytes: maxRefusal, Lists: []string{"Errors", "Results"},
		Good: []byte(`{"Results":null,"Errors":[{"OpIndex":1,"What":"x"}]}`), Decode: func(data []byte) error {
			_, err := decodeRefusal(data, 64)
			return err
		}})
}
