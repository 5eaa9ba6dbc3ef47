package fence

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t,
		bombs.Decoder{Name: "problem", Bytes: maxProblem, Lists: []string{"Type", "current"}, Good: []byte(`{"type":"` + ProblemRefused + `"}`), Decode: func(data []byte) error {
			err := ResponseError(&http.Response{StatusCode: http.StatusPreconditionFailed,
				Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: io.NopCloser(bytes.NewReader(data))})
			if _, ok := errors.AsType[*RefusedError](err); ok {
				return nil
			}
			return err
		}},
		bombs.Decoder{Name: "mark", Bytes: maxLine, Lists: []string{"fence"}, Good: []byte(`{"resource":"r","fence":{"shard":"s","session":"x","token":1}}`), Decode: func(data []byte) error {
			_, err := decodeMark(fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(data), data))
			return err
		}})
}
