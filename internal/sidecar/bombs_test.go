package sidecar

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/bombs"
)

// TestBombs is not parallel, because it measures the heap.
func TestBombs(t *testing.T) {
	s := &Server{limits: core.Limits{WriteOps: 1 << 20, WriteBytes: 1 << 20}}
	of := func(name, good string, lists []string, read func(*json.Decoder) error) bombs.Decoder {
		return bombs.Decoder{Name: name, Bytes: mostBody, Good: []byte(good), Lists: lists, Decode: func(data []byte) error {
			return readBody(http.MaxBytesReader(nil, io.NopCloser(bytes.NewReader(data)), mostBody), read)
		}}
	}
	bombs.Test(t,
		of("commit", `{"token":1,"ops":[{"op":"append","text":""}]}`, []string{"ops", "token"}, func(d *json.Decoder) error {
			_, _, err := s.decodeCommit(d)
			return err
		}),
		of("append", `{"token":1,"text":""}`, []string{"text"}, func(d *json.Decoder) error {
			_, _, err := decodeAppend(d)
			return err
		}),
		of("contend", `{}`, []string{"ttl_ms"}, optional(new(contendBody))),
		of("lock", `{}`, []string{"wait_ms"}, optional(new(lockBody))),
		of("begin", `{"token":1}`, []string{"key"}, optional(new(beginBody))),
		of("end", `{"token":1}`, []string{"attempt"}, optional(new(endBody))),
		of("resolve", `{"token":1}`, []string{"doubt"}, optional(new(resolveBody))))
}
