package follower

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/tenure-go/tenure/core"
)

const (
	manifestKey = "_snapshot/manifest"
	// maxManifest bounds the bytes decoded of a record, which anybody with the
	// right to write to the store may have put there.
	maxManifest = 4 << 10
	maxChunks   = 1 << 20
)

// manifest says which snapshot counts.
type manifest struct {
	Version int   `json:"version"`
	Current *part `json:"current,omitempty"`
	// Spare is a part that may exist in whole or in part and does not count: a
	// snapshot that is being written, or the one before while it is being removed.
	Spare *part `json:"spare,omitempty"`
}

// part is one snapshot, whole or not.
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
		return &manifest{Version: 1}, nil
	}
	return decodeManifest(item.Value)
}

func (m *manifest) put() core.Op {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return core.Put(manifestKey, text)
}

func decodeManifest(text []byte) (*manifest, error) {
	if len(text) > maxManifest {
		return nil, fmt.Errorf("%w: %d bytes", ErrCorrupt, len(text))
	}
	m := new(manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if m.Version != 1 {
		return nil, fmt.Errorf("%w: version %d, and this is for version 1", ErrCorrupt, m.Version)
	}
	for _, p := range []*part{m.Current, m.Spare} {
		if p != nil && !p.valid() {
			return nil, fmt.Errorf("%w: snapshot %.80q of entry %d, %d bytes in %d chunks", ErrCorrupt, p.Name, p.Seq,
				p.Bytes, p.Chunks)
		}
	}
	return m, nil
}

// valid rejects stored values that this package cannot have written, before they
// reach keys, names and loops; names had no random digits once.
func (p *part) valid() bool {
	return regexp.MustCompile(`^[0-9]{1,19}-[0-9]{1,19}(-[0-9a-f]{16})?$`).MatchString(p.Name) &&
		p.Seq > 0 && p.Token > 0 && p.Bytes >= 0 && p.Chunks >= 0 && p.Chunks <= maxChunks && (!p.Blob || p.Chunks == 0)
}
