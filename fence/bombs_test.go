package fence

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel: it looks at the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "problem", Bytes: maxProblem, Lists: []string{"Type", "current"}, Decode: func(_ context.Context, data []byte) {
		_ = ResponseError(&http.Response{StatusCode: http.StatusConflict, Header: http.Header{"Content-Type": {"application/problem+json"}},
			Body: io.NopCloser(bytes.NewReader(data))})
	}})
}
