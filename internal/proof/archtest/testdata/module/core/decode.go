package core

import (
	"encoding/binary"
	"encoding/json"

	"example.com/synthetic/internal/boundjson" // want `core may not import example.com/synthetic/internal/boundjson`
)

func decodeTried(b []byte) (v int, err error) { return through(b) }

func through(b []byte) (v int, err error) {
	err = boundjson.Unmarshal(b, 1, 1, &v)
	return v, err
}

func decodeUntried(b []byte) (v int, err error) { // want `decodeUntried is a decoder: TestBombs of its package has to try it`
	err = boundjson.Unmarshal(b, 1, 1, &v)
	return v, err
}

func decodeAny(b []byte) (v int, err error) { // want `decodeAny is a decoder`
	err = json.Unmarshal(b, &v) // want `json.Unmarshal of what others may have written`
	return v, err
}

func numberUntried(b []byte) uint64 { // want `numberUntried is a decoder`
	n, _ := binary.Uvarint(b)
	return n
}

func encode(v int) ([]byte, error) { return json.Marshal(v) }
