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

// Snapshot is the whole state of a shard after some entry of its log.
type Snapshot struct {
	Position
	Store string // the namespace's identity
	State []byte // as the owner wrote it
}

// Blobs is a store for large snapshots, such as an object store or a folder that all processes see.
// It belongs to one namespace, and is safe for concurrent use. A name is a shard's name, "/", and
// digits, lower-case letters and "-". A blob is written once, read, and deleted. Its name is never
// used again. Each attempt to write a snapshot has its own name, so a Put or Delete that takes
// effect late, after its error, damages nothing. Such a Put may leave a blob behind.
type Blobs interface {
	Put(ctx context.Context, name string, data []byte) error // durable when it returns nil
	Get(ctx context.Context, name string) ([]byte, error)
	Delete(ctx context.Context, name string) error // nil if it does not exist
}

// SnapshotOptions are the options of NewSnapshotter. Nil and the zero value mean the defaults.
type SnapshotOptions struct {
	// Blobs is where states are kept. Default: the coordination store, as items of the shard under
	// the fence.
	Blobs Blobs
	// Keep is the number of entries before the snapshot that stay in the log. A follower that is no
	// further behind needs no snapshot. Default 1000; negative for none.
	Keep int
	// MaxBytes limits a state, written or read. Default 64 MiB. Coordination stores are made for
	// less data: etcd holds about 2 GiB in total.
	MaxBytes int
	// ChunkBytes is the size of the items into which a state in the coordination store is cut, at
	// least 1 KiB. Default 256 KiB, which every store accepts in one write.
	ChunkBytes int
}

// Snapshotter writes and reads snapshots of shards and trims their logs. It keeps no state, and is
// safe for concurrent use. Owners and followers of a shard need the same Blobs.
//
// Write writes a snapshot next to the previous one. One fenced commit then names it in a manifest
// and trims the log. Only then is the previous snapshot removed. The manifest changes only from the
// version that was read, and only parts that it names as gone or unfinished are removed. So after a
// crash at any step, or a commit that takes effect late, a whole snapshot and every entry after it
// remain (T7). The next Write removes what is left over. The items are below "_snapshot/".
type Snapshotter struct{ o SnapshotOptions }

// NewSnapshotter returns a Snapshotter. A nil o means the defaults. The error matches
// core.ErrInvalid.
func NewSnapshotter(o *SnapshotOptions) (*Snapshotter, error) {
	s := &Snapshotter{}
	if o != nil {
		s.o = *o
	}
	def(&s.o.Keep, 1000)
	def(&s.o.MaxBytes, 64<<20)
	def(&s.o.ChunkBytes, 256<<10)
	if s.o.MaxBytes < 0 || s.o.ChunkBytes < 1<<10 {
		return nil, optErr("MaxBytes %d is negative, or ChunkBytes %d is below 1024", s.o.MaxBytes, s.o.ChunkBytes)
	}
	return s, nil
}

// Read returns a shard's snapshot, or nil without an error if it has none. If the snapshot is
// damaged or larger than MaxBytes, the error matches ErrCorrupt. A new owner that continues
// from a snapshot calls Read, and then reads the log after the snapshot.
func (s *Snapshotter) Read(ctx context.Context, b core.Backend, shard string) (*Snapshot, error) {
	get := func(key string) (*core.Item, error) { return b.Get(ctx, core.ShardID(shard), key) }
	// During the read, the owner may write the next snapshot and remove this one.
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

// state reads a part that the manifest names, and compares its checksum.
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

// Write writes a snapshot of the lease's shard and trims the log behind it. state is the whole
// state after the entries up to seq. The lease's handler makes one call at a time, with
// lease.Context() or a child of it. If there is a newer snapshot, or seq is beyond the log, the
// error matches core.ErrInvalid. If entry seq was trimmed, it matches core.ErrTrimmed. If state is
// larger than MaxBytes, it matches core.ErrTooLarge. Otherwise, the errors are those of
// Lease.Commit or of Blobs. The caller may repeat the call, even while the outcome of a commit is
// unknown.
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

// tidy removes what is left of an earlier Write: an unfinished snapshot, or the snapshot that
// it replaced.
func (s *Snapshotter) tidy(ctx context.Context, lease *core.Lease) (*manifest, error) {
	m, err := readManifest(func(key string) (*core.Item, error) { return lease.Get(ctx, key) })
	if err != nil {
		return nil, err
	}
	if m.Next != nil { // nothing in flight can make it current, since the lease waited for that
		m.Next, m.Gone = nil, m.Next
	}
	return m, s.removeGone(ctx, lease, m)
}

// put writes the snapshot next to the current one.
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
		p.Chunks = (len(state) + s.o.ChunkBytes - 1) / s.o.ChunkBytes
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
		chunk := state[i*s.o.ChunkBytes : min(len(state), (i+1)*s.o.ChunkBytes)]
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

// trim returns the operation that removes the log behind the snapshot of seq, if there is anything
// to remove.
func (s *Snapshotter) trim(lease *core.Lease, seq core.Seq) []core.Op {
	through := seq - core.Seq(max(0, s.o.Keep))
	if through < max(1, lease.Head().Oldest) {
		return nil
	}
	return []core.Op{core.Trim(through)}
}

// removeGone removes the part that the stored manifest names as gone or as next, complete or not.
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
	const most = 64 // deletions in one commit, which every store takes
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
