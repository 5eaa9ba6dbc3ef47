package follower

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/boundjson"
)

const (
	manifestKey     = "_snapshot/manifest"
	manifestVersion = 2
	// maxManifest is the largest size of a record that is decoded, in bytes. Any writer of the
	// store may have written the record.
	maxManifest = 4 << 10
	maxChunks   = 1 << 20
)

// manifest names the snapshot that counts. At most one of Next and Gone is set.
type manifest struct {
	Version int   `json:"version"`
	Current *part `json:"current,omitempty"`
	// Next is being written, and may become Current.
	Next *part `json:"next,omitempty"`
	// Gone may exist in whole or in part, and never becomes Current. Only a part that the stored
	// manifest names as Gone or Next is removed.
	Gone *part `json:"gone,omitempty"`

	stored core.Version // of the item; core.Absent without one
}

// part is one snapshot, complete or not.
type part struct {
	Name   string     `json:"name"` // token of the lease that wrote it, Seq, and 16 random hex digits
	Seq    core.Seq   `json:"seq"`
	Token  core.Token `json:"token"` // of entry Seq
	Bytes  int64      `json:"bytes"`
	Sum    string     `json:"sha256"`
	Chunks int        `json:"chunks,omitempty"`
	Blob   bool       `json:"blob,omitempty"`
}

func (p *part) chunk(i int) string { return fmt.Sprintf("_snapshot/%s/%05d", p.Name, i) }

func (p *part) blob(shard string) string { return shard + "/" + p.Name }

type getter func(key string) (*core.Item, error)

func readManifest(get getter) (*manifest, error) {
	item, err := get(manifestKey)
	if err != nil {
		return nil, err
	}
	if item == nil {
		return &manifest{Version: manifestVersion, stored: core.Absent}, nil
	}
	m, err := decodeManifest(item.Value)
	if err != nil {
		return nil, err
	}
	m.stored = item.Version
	return m, nil
}

// commit writes the manifest, with other operations in the same step. If the stored manifest is no
// longer the one from which this one was made, the error is *core.ConflictError.
func (m *manifest) commit(ctx context.Context, lease *core.Lease, more ...core.Op) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	done, err := lease.Commit(ctx, append([]core.Op{core.PutIf(manifestKey, text, m.stored)}, more...)...)
	if err != nil {
		return err
	}
	if len(done.Versions) > 0 {
		m.stored = done.Versions[0]
		return nil
	}
	// The reply was lost. No other write can follow, because each has a condition that no longer
	// holds.
	item, err := lease.Get(ctx, manifestKey)
	if err != nil {
		return err
	}
	if item == nil || !bytes.Equal(item.Value, text) {
		return fmt.Errorf("%w: the manifest is not what was written: call Write once at a time", core.ErrConflict)
	}
	m.stored = item.Version
	return nil
}

func decodeManifest(text []byte) (*manifest, error) {
	m := new(manifest)
	if err := boundjson.Unmarshal(text, maxManifest, 64, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if m.Version != manifestVersion {
		return nil, fmt.Errorf("%w: version %d, and this is for version %d", ErrCorrupt, m.Version, manifestVersion)
	}
	for _, p := range []*part{m.Current, m.Next, m.Gone} {
		if p != nil && !p.valid() {
			return nil, fmt.Errorf("%w: snapshot %.80q of entry %d, %d bytes in %d chunks", ErrCorrupt, p.Name, p.Seq,
				p.Bytes, p.Chunks)
		}
	}
	return m, nil
}

// valid reports whether this package can have written the values. It is called before they are
// used in keys, names and loops.
func (p *part) valid() bool {
	return regexp.MustCompile(`^[0-9]{1,19}-[0-9]{1,19}-[0-9a-f]{16}$`).MatchString(p.Name) &&
		p.Seq > 0 && p.Token > 0 && p.Bytes >= 0 && p.Chunks >= 0 && p.Chunks <= maxChunks && (!p.Blob || p.Chunks == 0)
}
