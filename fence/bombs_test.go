package fence

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t,
		bombs.Decoder{Name: "fence", Bytes: 1 << 20, Good: []byte("s/x/1"), More: [][]byte{bytes.Repeat([]byte("/"), 1<<20)},
			Decode: func(data []byte) error {
				_, err := Parse(string(data))
				return err
			}},
		bombs.Decoder{Name: "mark", Bytes: maxLine, Lists: []string{"fence"},
			Good: []byte(`{"resource":"r","fence":{"shard":"s","session":"x","token":1}}`), Decode: func(data []byte) error {
				_, err := decodeMark(fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(data), data))
				return err
			}})
}
