package trace

import (
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	read := func(lines ...[]byte) (*Reader, error) {
		var file bytes.Buffer
		zip, _ := gzip.NewWriterLevel(&file, gzip.BestSpeed)
		for _, line := range lines {
			_, _ = zip.Write(append(line, '\n'))
		}
		_ = zip.Close()
		return NewReader(&file)
	}
	bombs.Test(t,
		bombs.Decoder{Name: "record", Bytes: maxLine, Lists: []string{"o", "i.v.s"}, Good: []byte(`{"t":1}`), Decode: func(data []byte) error {
			r, err := read([]byte(`{"tenure_trace":1}`), data)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Next()
			return err
		}},
		bombs.Decoder{Name: "header", Bytes: maxLine, Good: []byte(`{"tenure_trace":1}`), Decode: func(data []byte) error {
			_, err := read(data)
			return err
		}})
}
