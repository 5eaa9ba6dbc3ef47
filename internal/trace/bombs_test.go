package trace

import (
	"bytes"
	"compress/gzip"
	"context"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel: it looks at the heap.
func TestBombs(t *testing.T) {
	lists := []string{"o", "i.v.s"}
	bombs.Test(t, bombs.Decoder{Name: "record", Bytes: maxLine, Lists: lists, Decode: func(_ context.Context, data []byte) {
		var file bytes.Buffer
		zip, _ := gzip.NewWriterLevel(&file, gzip.BestSpeed)
		_, _ = zip.Write([]byte(`{"tenure_trace":1}` + "\n"))
		_, _ = zip.Write(data)
		_, _ = zip.Write([]byte("\n"))
		_ = zip.Close()
		r, err := NewReader(&file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = r.Next(); err == nil {
			t.Error("a bomb was read as a record")
		}
	}})
}
