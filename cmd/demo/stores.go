package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
)

// A store is a backend that the demonstration can use.
type store struct {
	opener core.Opener
	minTTL time.Duration // its floor, if that is known before it is opened
	// temporary, if not nil, is a place of the store inside a directory of its own.
	temporary func(dir string) string
	// options is what the opener decodes.
	options func(dsn, namespace string, create bool) map[string]any
	// files are those that opening a place may create; nil for a server.
	files func(dsn string) []string
	// look is a command that shows a namespace's logs.
	look func(dsn, namespace string) string
}

// stores lists what -backend may name; the first is the default.
func stores() []store {
	return []store{{
		opener:    sqlite.Opener,
		minTTL:    250 * time.Millisecond,
		temporary: func(dir string) string { return filepath.Join(dir, "board.db") },
		options: func(dsn, namespace string, create bool) map[string]any {
			return map[string]any{"path": dsn, "namespace": namespace, "create": create}
		},
		files: func(dsn string) []string {
			var out []string
			for _, file := range []string{dsn, dsn + "-members"} {
				out = append(out, file, file+"-wal", file+"-shm", file+"-journal")
			}
			return out
		},
		look: func(dsn, namespace string) string {
			return fmt.Sprintf(`sqlite3 %q "SELECT shard, seq, token, CAST(payload AS TEXT) FROM tenure_entries WHERE namespace = '%s' ORDER BY shard, seq LIMIT 20"`, dsn, namespace)
		},
	}}
}

// open opens a namespace of the store at dsn.
func (s store) open(ctx context.Context, dsn, namespace string, create bool) (core.Backend, error) {
	text, err := json.Marshal(s.options(dsn, namespace, create))
	if err != nil {
		return nil, fmt.Errorf("demo: options of %s: %w", s.opener.Name, err)
	}
	return s.opener.Open(ctx, func(into any) error {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		return d.Decode(into)
	})
}

// runName makes up the last part of a run's namespace, so that a run never meets
// the logs of another.
func runName() string {
	var b [6]byte
	rand.Read(b[:])
	return "run-" + hex.EncodeToString(b[:])
}
