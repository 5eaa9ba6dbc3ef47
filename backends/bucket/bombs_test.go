package bucket

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	good := example().encode()
	head := append([]byte(entryFormat), good[len(entryFormat):headerSize]...)
	head = append(head, 7, 9, 0, 0) // number, revision, pace, writer
	op := append([]byte{6}, "app/aa\x00"...)
	many := func(head, grain []byte, n int) []byte { return sealed(append(head, bytes.Repeat(grain, n)...)) }
	records := append([]byte(checkpointFormat), make([]byte, 2*len(nonce{}))...)
	records = binary.AppendUvarint(append(records, 7, 9), 1<<19)
	var ascending []byte
	for i := range 1 << 18 {
		ascending = append(ascending, 11)
		ascending = fmt.Appendf(ascending, "app/%07d", i)
		ascending = append(ascending, 1, 0)
	}
	bombs.Test(t, bombs.Decoder{Name: "entry", Bytes: maxEntry, Good: good, More: [][]byte{
		many(binary.AppendUvarint(bytes.Clone(head), 1<<21), []byte{0}, 1<<21),                // empty transactions
		many(binary.AppendUvarint(bytes.Clone(head), 1<<18), append([]byte{1}, op...), 1<<18), // small ones
		many(binary.AppendUvarint(append(bytes.Clone(head), 1), 1<<18), op, 1<<18),            // one of many operations
	}, Decode: func(b []byte) error {
		_, err := decodeEntry(b, 7, "app")
		return err
	}}, bombs.Decoder{Name: "checkpoint", Bytes: 4 << 20, Good: exampleCheckpoint(), More: [][]byte{
		many(records, ascending, 1),
	}, Decode: func(b []byte) error {
		_, err := decodeCheckpoint(bytes.NewReader(b), len(b), 7, "app", 4<<20)
		return err
	}})
}
