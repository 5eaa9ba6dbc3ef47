package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/bombs"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	because := func(why string) error {
		if why == "" {
			return nil
		}
		return errors.New(why)
	}
	bombs.Test(t,
		bombs.Decoder{Name: "cuts", Bytes: sqlschema.Width("cuts"), Good: []byte("[0,1]"), Decode: func(data []byte) error {
			c := &chunk{shard: "s", first: 1, last: 1, token: 1, number: 1, payloads: []byte("x")}
			return because(c.check(data, 1))
		}},
		bombs.Decoder{Name: "member", Bytes: sqlschema.Width("meta"), Lists: []string{"a"}, Good: []byte(`{"a":"b"}`), Decode: func(data []byte) error {
			m, why, err := scanMember(values{"S", "n1", int64(time.Second), int32(0), int32(1), data, false, int64(0), false})
			if err != nil || (why == "") != (m.Meta["a"] == "b") {
				t.Errorf("metadata of %d bytes: got %v, %q, %v", len(data), m.Meta, why, err)
			}
			return because(why)
		}})
}
