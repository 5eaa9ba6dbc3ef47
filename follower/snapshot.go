package follower

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/errtext"
)

// Snapshot is the whole state of a shard after a given entry of its log.
type Snapshot struct {
	Position
	Store string // the namespace's identity
	State []byte // the state as the owner wrote it
}

// Blobs is a store for large snapshots, such as an object store or a folder that all processes can
// access. A Blobs belongs to one namespace, and must be safe for concurrent use. A blob's name
// consists of a shard's name, "/", and digits, lower-case letters and "-". Each blob is written
// once, and may then be read and deleted. A blob's name is never reused, because each attempt to
// write a snapshot uses a new name. Therefore, a Put or Delete that returns an error but takes
// effect later does no damage. Such a Put may leave a blob behind.
type Blobs interface {
	Put(ctx context.Context, name string, data []byte) error // the blob is durable when Put returns nil
	Get(ctx context.Context, name string) ([]byte, error)
	Delete(ctx context.Context, name string) error // returns nil if the blob does not exist
}

// SnapshotOptions configure NewSnapshotter. Nil and the zero value mean the defaults.
type SnapshotOptions struct {
	// Blobs stores the snapshots. The default is the coordination store, which stores snapshots as
	// items of the shard, under the fence.
	Blobs Blobs
	// Keep is the number of entries before the snapshot that remain in the log. A follower that is
	// at most Keep entries behind the snapshot does not need to restore it. Default 1000. If Keep
	// is negative, no entry before the snapshot remains.
	Keep int
	// MaxBytes is the maximum size, in bytes, of a snapshot's state. Default 64 MiB. Coordination
	// stores are designed for small amounts of data. For example, etcd can store about 2 GiB in
	// total.
	MaxBytes int

	chunkBytes int // size of the items of a state in the coordination store; other values are for tests
}

// Snapshotter writes and reads shards' snapshots, and trims the shards' logs. A Snapshotter keeps
// no state, and is safe for concurrent use. A shard's owners and followers must use the same Blobs.
//
// Write first stores the new snapshot beside the previous one. One fenced commit then records the
// new snapshot in a manifest and trims the log. Finally, Write removes the previous snapshot. Write
// replaces the manifest only if the manifest has not changed since Write read it, and removes only
// parts that the manifest lists as gone or unfinished. Therefore, the last complete snapshot and
// the entries after it survive both a crash at any step and any commit that takes effect late (T7).
// The next Write removes leftover parts. The items' keys begin with "_snapshot/".
type Snapshotter struct{ o SnapshotOptions }

// NewSnapshotter returns a Snapshotter. If o is nil, NewSnapshotter uses the defaults. The error
// matches core.ErrInvalid.
func NewSnapshotter(o *SnapshotOptions) (*Snapshotter, error) {
	s := &Snapshotter{}
	if o != nil {
		s.o = *o
	}
	def(&s.o.Keep, 1000)
	def(&s.o.MaxBytes, 64<<20)
	def(&s.o.chunkBytes, 256<<10) // every store accepts a write of this size
	if s.o.MaxBytes < 0 {
		return nil, optErr("MaxBytes %d is negative", s.o.MaxBytes)
	}
	return s, nil
}

// Read returns a shard's snapshot, or nil and no error if the shard has no snapshot. If the
// snapshot is damaged or larger than MaxBytes, the error matches ErrCorrupt. To continue from a
// snapshot, a new owner calls Read, and then reads the entries after the snapshot.
func (s *Snapshotter) Read(ctx context.Context, b core.Backend, shard string) (*Snapshot, error) {
	get := func(key string) (*core.Item, error) { return b.Get(ctx, core.ShardID(shard), key) }
	// During the read, the owner may replace the snapshot that is being read.
	for former := ""; ; {
		m, err := readManifest(get)
		if err != nil {
			return nil, errtext.Errorf("tenure: shard %q: the snapshot's manifest: %w", shard, err)
		}
		if m.Current == nil {
			return nil, nil
		}
		state, err := s.state(ctx, get, shard, m.Current)
		if err == nil {
			at := Position{Shard: shard, Seq: m.Current.Seq, Token: m.Current.Token}
			return &Snapshot{Position: at, Store: b.Info().StoreID, State: state}, nil
		}
		if ctx.Err() != nil || m.Current.Name == former {
			return nil, errtext.Errorf("tenure: shard %q: the snapshot of entry %d: %w", shard, m.Current.Seq, err)
		}
		former = m.Current.Name
	}
}

func (s *Snapshotter) state(ctx context.Context, get getter, shard string, p *part) ([]byte, error) {
	if p.Bytes > int64(s.o.MaxBytes) {
		return nil, fmt.Errorf("%w: it has %d bytes: raise MaxBytes above %d if that is right", ErrCorrupt, p.Bytes,
			s.o.MaxBytes)
	}
	var state []byte
	if p.Blob {
		if s.o.Blobs == nil {
			return nil, fmt.Errorf("%w: it was written with Blobs, and this Snapshotter has none: give both the same",
				core.ErrInvalid)
		}
		var err error
		if state, err = s.o.Blobs.Get(ctx, p.blob(shard)); err != nil {
			return nil, err
		}
	}
	for i := range p.Chunks {
		item, err := get(p.chunk(i))
		if err != nil {
			return nil, err
		}
		if item == nil {
			return nil, fmt.Errorf("%w: item %s is missing", ErrCorrupt, p.chunk(i))
		}
		if state = append(state, item.Value...); int64(len(state)) > p.Bytes {
			break
		}
	}
	if int64(len(state)) != p.Bytes || sum(state) != p.Sum {
		return nil, fmt.Errorf("%w: its %d bytes are not the %d that were written", ErrCorrupt, len(state), p.Bytes)
	}
	return state, nil
}

func sum(state []byte) string {
	h := sha256.Sum256(state)
	return hex.EncodeToString(h[:])
}

// Write writes a snapshot of the lease's shard and trims the log behind the snapshot. Pass the
// whole state after the entries up to seq. The lease's handler calls Write with lease.Context() or
// a child of that context, and makes only one call at a time. If there is a newer snapshot, or if
// the log does not yet contain entry seq, the error matches core.ErrInvalid. If entry seq was
// trimmed, the error matches core.ErrTrimmed. If state is larger than MaxBytes, the error matches
// core.ErrTooLarge. Other errors come from Lease.Commit or from Blobs. The caller may repeat the
// call, even while the outcome of a commit is unknown.
func (s *Snapshotter) Write(ctx context.Context, lease *core.Lease, seq core.Seq, state []byte) error {
	if err := s.write(ctx, lease, seq, state); err != nil {
		return errtext.Errorf("tenure: shard %q: snapshot of entry %d: %w", lease.Shard(), seq, err)
	}
	return nil
}

func (s *Snapshotter) write(ctx context.Context, lease *core.Lease, seq core.Seq, state []byte) error {
	if len(state) > s.o.MaxBytes {
		return fmt.Errorf("%w: the state has %d bytes: raise MaxBytes above %d, here and in every follower",
			core.ErrTooLarge, len(state), s.o.MaxBytes)
	}
	m, err := s.tidy(ctx, lease)
	if err != nil {
		return err
	}
	return s.put(ctx, lease, m, seq, state)
}

// tidy removes an unfinished or replaced snapshot that an earlier Write left behind.
func (s *Snapshotter) tidy(ctx context.Context, lease *core.Lease) (*manifest, error) {
	m, err := readManifest(func(key string) (*core.Item, error) { return lease.Get(ctx, key) })
	if err != nil {
		return nil, err
	}
	if m.Next != nil { // no commit in flight can make it current, because the lease waited for all commits
		m.Next, m.Gone = nil, m.Next
	}
	return m, s.removeGone(ctx, lease, m)
}

func (s *Snapshotter) put(ctx context.Context, lease *core.Lease, m *manifest, seq core.Seq, state []byte) error {
	if m.Current != nil && seq <= m.Current.Seq {
		if seq < m.Current.Seq {
			return fmt.Errorf("%w: there is one of entry %d already", core.ErrInvalid, m.Current.Seq)
		}
		return m.commit(ctx, lease, s.trim(lease, seq)...)
	}
	page, err := lease.ReadLog(ctx, seq-1, 1)
	if err != nil {
		return err
	}
	if len(page.Entries) == 0 {
		return fmt.Errorf("%w: the log ends at entry %d", core.ErrInvalid, page.Head.Seq)
	}
	p := &part{Seq: seq, Token: page.Entries[0].Token, Bytes: int64(len(state)), Sum: sum(state),
		Blob: s.o.Blobs != nil}
	p.Name = fmt.Sprintf("%d-%d-%016x", lease.Token(), seq, rand.Uint64())
	if !p.Blob {
		p.Chunks = (len(state) + s.o.chunkBytes - 1) / s.o.chunkBytes
	}
	m.Next = p
	if err := m.commit(ctx, lease); err != nil {
		return err
	}
	if p.Blob {
		if err := s.o.Blobs.Put(ctx, p.blob(lease.Shard()), state); err != nil {
			return err
		}
	}
	for i := range p.Chunks {
		chunk := state[i*s.o.chunkBytes : min(len(state), (i+1)*s.o.chunkBytes)]
		if _, err := lease.Commit(ctx, core.Put(p.chunk(i), chunk)); err != nil {
			return err
		}
	}
	m.Current, m.Next, m.Gone = p, nil, m.Current
	if err := m.commit(ctx, lease, s.trim(lease, seq)...); err != nil {
		return err
	}
	return s.removeGone(ctx, lease, m)
}

// If there are entries to remove, trim returns the operation that removes them.
func (s *Snapshotter) trim(lease *core.Lease, seq core.Seq) []core.Op {
	through := seq - core.Seq(max(0, s.o.Keep))
	if through < max(1, lease.Head().Oldest) {
		return nil
	}
	return []core.Op{core.Trim(through)}
}

// The stored manifest must list a part as gone or next before removeGone removes it.
func (s *Snapshotter) removeGone(ctx context.Context, lease *core.Lease, m *manifest) error {
	p := m.Gone
	switch {
	case p == nil:
		return nil
	case p.Blob && s.o.Blobs == nil:
		return fmt.Errorf("%w: the last one was written with Blobs, and this Snapshotter has none", core.ErrInvalid)
	case p.Blob:
		if err := s.o.Blobs.Delete(ctx, p.blob(lease.Shard())); err != nil {
			return err
		}
	}
	const most = 64 // deletions per commit; every store accepts this many
	for from := 0; from < p.Chunks; from += most {
		var ops []core.Op
		for i := from; i < min(p.Chunks, from+most); i++ {
			ops = append(ops, core.Delete(p.chunk(i)))
		}
		if _, err := lease.Commit(ctx, ops...); err != nil {
			return err
		}
	}
	m.Gone = nil
	return m.commit(ctx, lease)
}
