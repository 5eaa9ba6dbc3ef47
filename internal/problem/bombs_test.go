package problem

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "document", Bytes: MaxBytes, Lists: []string{"Type", "shard", "current"},
		Good: []byte(`{"type":"urn:a"}`), Decode: func(data []byte) error {
			d, err := Read(&http.Response{Header: http.Header{"Content-Type": {contentType}},
				Body: io.NopCloser(bytes.NewReader(data))}, "urn:a")
			if d == nil && err == nil {
				return errors.New("no document")
			}
			return err
		}})
}
