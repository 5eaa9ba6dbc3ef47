package grants

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "grants", Bytes: 1 << 20, Good: []byte(Event(time.Unix(7, 0), driver.EndGone, "a")),
		Decode: func(data []byte) error {
			if _, why := Parse(string(data)); why != "" {
				return errors.New(why)
			}
			return nil
		}, More: [][]byte{bytes.Repeat([]byte("0+0+/"), 1<<20/5)}})
}
