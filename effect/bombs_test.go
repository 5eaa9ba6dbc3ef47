package effect

import (
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "record", Bytes: maxRecord, Lists: []string{"result", "x"}, Good: encode(Effect{State: Done}), Decode: func(data []byte) error {
		_, err := decode(&core.Item{Key: recordPrefix + "a", Value: data}, recordPrefix, "")
		return err
	}})
}
