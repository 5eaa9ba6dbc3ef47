package consul

import (
	"bytes"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t, bombs.Decoder{Name: "list", Bytes: 4 << 20, Good: []byte(`[{"Key":"a","Value":"MQ==","ModifyIndex":7}]`),
		Decode: func(data []byte) error {
			return (&listing{largest: 1 << 10}).read(bytes.NewReader(data))
		}}, bombs.Decoder{Name: "refusal", Bytes: maxRefusal, Lists: []string{"Errors", "Results"},
		Good: []byte(`{"Results":null,"Errors":[{"OpIndex":1,"What":"x"}]}`), Decode: func(data []byte) error {
			_, err := decodeRefusal(data, 64)
			return err
		}})
}
