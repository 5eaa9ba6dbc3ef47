package changelog

import (
	"bytes"
	"testing"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	many := append([]byte("1 9 0 0"), bytes.Repeat([]byte(" :a"), 1<<20)...)
	bombs.Test(t, bombs.Decoder{Name: "change log", Bytes: 1 << 20, Good: []byte("1 9 0 0 0:a"), Decode: func(data []byte) error {
		_, err := decode(kv.Pair{Key: "k", Value: data, Rev: 9})
		return err
	}, More: [][]byte{many[:1<<20], append(many[:MaxPiggybackBytes-9:MaxPiggybackBytes-9], " :"...)}})
}
