package route

import (
	"bytes"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t,
		bombs.Decoder{Name: "owners", Bytes: maxMap, Lists: []string{"shards", "members"}, Good: []byte(`{"version":"1","full":true,"shards":[{"shard":"a"}]}`), Decode: func(data []byte) error {
			_, err := decodeOwners(bytes.NewReader(data))
			return err
		}})
}
