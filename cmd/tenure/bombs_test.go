package main

import (
	"testing"

	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t,
		bombs.Decoder{Name: "rule", Bytes: control.MaxRecord, Lists: []string{"sessions"}, Good: []byte(`{"kind":"drain","node":"a"}`), Decode: func(data []byte) error {
			_, err := decodeRule(data)
			return err
		}},
		bombs.Decoder{Name: "change", Bytes: 2 * control.MaxRecord, Lists: []string{"rule.sessions"}, Good: []byte(`{"rule":{"kind":"drain","node":"a"}}`), Decode: func(data []byte) error {
			_, err := decodeChange(data)
			return err
		}})
}
