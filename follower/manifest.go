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
	// maxManifest is in bytes. A manifest is untrusted, because any client with write access to the
	// store may have written it.
	maxManifest = 4 << 10
	maxChunks   = 1 << 20
)

// At most one of Next and Gone is set.
type manifest struct {
	Version int   `json:"version"`
	Current *part `json:"current,omitempty"`
	// Next is the part that is being written. It may become Current.
	Next *part `json:"next,omitempty"`
	// Gone is a part, perhaps incomplete, that never becomes Current. A part is removed only if the
	// stored manifest lists it as Gone or Next.
	Gone *part `json:"gone,omitempty"`

	stored core.Version // version of the item; core.Absent if there is no item
}

// part is one snapshot, which may be incomplete.
type part struct {
	Name   string     `json:"name"` // token of the lease that wrote the part, Seq, and 16 random hex digits
	Seq    core.Seq   `json:"seq"`
	Token  core.Token `json:"token"` // token of entry Seq
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

// commit writes the manifest and performs other operations in one step. If the stored manifest has
// changed since m was read, the error is a *core.ConflictError.
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
	// The commit's reply was lost. A write that arrives late cannot take effect, because its
	// condition no longer holds.
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

// valid reports whether this package could have written the values. Callers must check valid before
// they use the values in keys, names and loops.
func (p *part) valid() bool {
	return regexp.MustCompile(`^[0-9]{1,19}-[0-9]{1,19}-[0-9a-f]{16}$`).MatchString(p.Name) &&
		p.Seq > 0 && p.Token > 0 && p.Bytes >= 0 && p.Chunks >= 0 && p.Chunks <= maxChunks && (!p.Blob || p.Chunks == 0)
}
