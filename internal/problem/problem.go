// Package problem writes and reads the problem documents (RFC 9457) with which packages fence and
// route refuse requests.
package problem

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/boundjson"
)

// MaxBytes is the largest part of a body that Read reads, in bytes.
const MaxBytes = 64 << 10

const contentType = "application/problem+json"

// maxValues is larger than the number of values of any Document.
const maxValues = 64

// Document is the body of a refusal. Fields that do not concern it are empty.
type Document struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	Resource string       `json:"resource,omitempty"`
	Shard    string       `json:"shard,omitempty"`
	Holder   string       `json:"holder,omitempty"`  // the session of the refused fence
	Node     string       `json:"node,omitempty"`    // of the owner
	Address  string       `json:"address,omitempty"` // of the owner; empty if it publishes none
	Token    driver.Token `json:"token,omitempty"`

	CurrentShard  string       `json:"current_shard,omitempty"`
	CurrentHolder string       `json:"current_holder,omitempty"`
	CurrentToken  driver.Token `json:"current_token,omitempty"`
}

// Write answers a request with the document.
func (d Document) Write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(d.Status)
	_ = json.NewEncoder(w).Encode(d) // a client that is gone needs no answer
}

// Read returns the Document of a response, or nil if the response is not a problem document of
// one of these types. It reads only the body of a problem document. The caller always closes
// the body. The error may quote everything that was read.
func Read(r *http.Response, types ...string) (*Document, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != contentType {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxBytes))
	if err != nil {
		return nil, err
	}
	// Other fields of an application's document may have other types.
	var kind struct{ Type string }
	if err := boundjson.Unmarshal(body, MaxBytes, maxValues, &kind); err != nil {
		return nil, err
	}
	if !slices.Contains(types, kind.Type) {
		return nil, nil
	}
	var d Document
	if err := boundjson.Unmarshal(body, MaxBytes, maxValues, &d); err != nil {
		return nil, err
	}
	return &d, nil
}
