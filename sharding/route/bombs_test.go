package route

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
	bombs.Test(t,
		bombs.Decoder{Name: "owners", Bytes: maxMap, Lists: []string{"shards", "members"}, Good: []byte(`{"version":"1","full":true,"shards":[{"shard":"a"}]}`), Decode: func(data []byte) error {
			_, err := decodeOwners(bytes.NewReader(data))
			return err
		}},
		bombs.Decoder{Name: "problem", Bytes: maxProblem, Lists: []string{"type", "shard"}, Good: []byte(`{"type":"` + ProblemUnowned + `"}`), Decode: func(data []byte) error {
			if ReadProblem(&http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{"Content-Type": {"application/problem+json"}},
				Body: io.NopCloser(bytes.NewReader(data))}) == nil {
				return errors.New("no problem")
			}
			return nil
		}})
}
