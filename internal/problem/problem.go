// Package problem writes and reads problem documents (RFC 9457). Packages fence and route use
// problem documents to refuse requests.
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

// MaxBytes limits the number of bytes that Read reads from a body.
const MaxBytes = 64 << 10

const contentType = "application/problem+json"

// maxValues is larger than the number of values of any Document.
const maxValues = 64

// Document is the body of a refusal. Fields that do not apply to the refusal are empty.
type Document struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	Resource string       `json:"resource,omitempty"`
	Shard    string       `json:"shard,omitempty"`
	Holder   string       `json:"holder,omitempty"`  // the session of the refused fence
	Node     string       `json:"node,omitempty"`    // of the owner
	Address  string       `json:"address,omitempty"` // of the owner; empty if not published
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

// Read returns the Document of a response. If the response is not a problem document of one of
// these types, Read returns nil. Read reads the body only if the response is a problem document.
// The caller must always close the body. The error may quote everything that Read has read.
func Read(r *http.Response, types ...string) (*Document, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != contentType {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxBytes))
	if err != nil {
		return nil, err
	}
	// Other fields may have different types in a problem document of an application.
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
