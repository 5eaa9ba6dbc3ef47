package sharding

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	bombs.Test(t,
		bombs.Decoder{Name: "note", Bytes: maxNote, Lists: []string{"gave"}, Good: []byte(`{"map":1}`), Decode: func(data []byte) error {
			_, err := readNote("s", &core.Item{Key: noteKey, Value: data})
			return err
		}},
		bombs.Decoder{Name: "report", Bytes: maxReport, Good: loadedReport(rand.New(rand.NewPCG(1, 1)), 2, true).encode(maxReport),
			More: [][]byte{manyShards()}, Decode: func(data []byte) error {
				_, err := decodeReport(data)
				return err
			}},
		bombs.Decoder{Name: "hash", Bytes: 1 << 20, Good: []byte("0x1"), Decode: func(data []byte) error {
			_, err := keyspace.ParseHash(string(data))
			return err
		}},
		// A plan may be twice as long as Bytes, and may take at most four times as much memory as
		// the plan Good.
		bombs.Decoder{Name: "plan", Bytes: 16 << 20, Good: (&planChange{Number: 1}).body(), More: planBombs(),
			Decode: func(data []byte) error {
				_, err := decode(1, data)
				return err
			}})
}

// planBombs returns truncated plans that announce too many items of one kind.
func planBombs() [][]byte {
	bomb := func(head []byte, most int, item func(i int) []byte) []byte {
		var b []byte
		n := 0
		for ; n < most && len(b) < 16<<20; n++ {
			b = append(b, item(n)...)
		}
		return append(append(binary.AppendUvarint(head, uint64(n)), b...), 0xff)
	}
	zeros := func(n int) func(int) []byte { return func(int) []byte { return make([]byte, n) } }
	suspect := func(rest []byte) func(int) []byte {
		return func(i int) []byte { return append(appendString(nil, fmt.Sprintf("%x", i)), rest...) }
	}
	versions := append([]byte{0, 1, maxVersions}, bytes.Repeat([]byte{1, 'v'}, maxVersions)...)
	keys := append(appendString([]byte{1, 0, 0}, "k"), 0, 0, 1, 1)
	return [][]byte{
		bomb([]byte{1}, maxSpecs, zeros(1)),
		bomb([]byte{1, 0}, maxShards, suspect([]byte{0, 0, 0})),
		bomb([]byte{1, 0}, maxShards, suspect([]byte{0, 1, 0})),
		bomb([]byte{1, 0}, maxShards, suspect(versions)),
		bomb([]byte{1, 0}, maxShards, suspect(append(append([]byte{maxDeaths}, make([]byte, 9*maxDeaths)...), 0, 0))),
		bomb(keys, maxShards, func(i int) []byte { return binary.BigEndian.AppendUint64([]byte{2, 1}, uint64(i)) }),
		bomb(append(keys, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0), maxShards, zeros(20)), // changes
		bomb([]byte{0}, maxMembers, zeros(1)),
		bomb([]byte{0, 0}, maxMembers, zeros(7)),
		bomb([]byte{0, 0, 0}, maxShards, zeros(3)),
		bomb(make([]byte, 6), maxShards, zeros(2)), // refused
		bomb(make([]byte, 7), maxShards, zeros(2)), // splits
		bomb(make([]byte, 8), maxShards, zeros(2)),
	}
}

// manyShards returns a truncated report that announces as many shards as possible.
func manyShards() []byte {
	b := append(appendString([]byte{reportVersion}, "s"), 0, 0, 0, 0)
	n := (maxReport - 16) / 11
	b = binary.AppendUvarint(b, uint64(n))
	for i := range n {
		b = append(appendString(append(b, 0), fmt.Sprintf("%04x", i)), 0, 0, 0, 0, 0)
	}
	return append(b, 0xff)
}
