package quorum

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
)

const (
	restorePart = "restore.part" // the folder in which Restore prepares a member
	// bump is added to the revisions of a restored database, so watches of former clients see no
	// revision twice. Each revision counts as a microsecond of tokens.
	bump = 100_000_000
)

// Snapshot writes a copy of the database, which contains everything that was acknowledged before
// the call, and a hash to a file. Snapshot writes to path + ".part", checks the hash, and then
// replaces path. If ctx ends or no majority answers, path is unchanged. The format is that of
// etcdctl snapshot save.
func (o *Operator) Snapshot(ctx context.Context, path string) (err error) {
	part := path + ".part"
	file, err := fileutil.TryLockFile(part, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return invalid("another process writes %.200q: wait for its end, or use another path", part)
	}
	if err != nil {
		return fmt.Errorf("tenure: quorum: write a snapshot: %w", err)
	}
	for _, e := range o.client.Endpoints() {
		if err = o.copy(ctx, e, file.File); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(part))
	} else {
		err = syncDir(filepath.Dir(path))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("tenure: quorum: write a snapshot of cluster %q to %.200q: %w", o.config.Cluster, path, err)
	}
	return nil
}

// copy writes one member's database to an empty file.
func (o *Operator) copy(ctx context.Context, endpoint string, file *os.File) error {
	ctx, cancel := context.WithCancel(ctx) // ends etcd's goroutine
	defer cancel()
	client, err := o.config.connect(endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // the error only repeats that it is closed
	asked, answered := context.WithTimeout(ctx, asking)
	_, err = client.Get(asked, "x") // the member has applied everything that was acknowledged
	answered()
	if err != nil {
		return fmt.Errorf("%s: %w", endpoint, err)
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	from, err := client.Snapshot(ctx)
	if err == nil {
		_, err = io.Copy(file, from)
		err = errors.Join(err, from.Close())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", endpoint, err)
	}
	return errors.Join(file.Sync(), checkHash(file))
}

// CheckSnapshot reads a snapshot, and returns an error that matches core.ErrInvalid unless the file
// is complete, undamaged, and a database of etcd.
func CheckSnapshot(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a file")
	}
	var file *os.File
	if err == nil {
		file, err = os.Open(path)
	}
	if err == nil {
		err = errors.Join(checkHash(file), file.Close())
	}
	if err == nil {
		err = checkDatabase(path)
	}
	if err != nil {
		return invalid("%.200q is not a snapshot: %w: use a file that Snapshot wrote", path, err)
	}
	return nil
}

// checkHash compares the hash at the end of the file.
func checkHash(file *os.File) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size%512 != sha256.Size || size < 512 { // as etcd distinguishes them
		return fmt.Errorf("its %d bytes do not end with a hash, so it is incomplete or foreign", size)
	}
	h, want := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.Copy(h, io.NewSectionReader(file, 0, size-sha256.Size)); err != nil {
		return err
	}
	if _, err := file.ReadAt(want, size-sha256.Size); err != nil {
		return err
	}
	if !bytes.Equal(h.Sum(nil), want) {
		return errors.New("its hash is wrong, so it is damaged")
	}
	return nil
}

// checkDatabase reads all revisions. A hostile file can make bbolt panic, or read unmapped memory.
func checkDatabase(path string) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its database is damaged: %.200s", fmt.Sprint(p))
		}
	}()
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true, Timeout: asking})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(func(tx *bbolt.Tx) error {
		for _, name := range []string{"key", "meta", "members", "cluster"} {
			if tx.Bucket([]byte(name)) == nil {
				return fmt.Errorf("its database has no %q, so it is not etcd's", name)
			}
		}
		return tx.Bucket([]byte("key")).ForEach(func(k, _ []byte) error {
			if len(k) != 17 && len(k) != 18 {
				return fmt.Errorf("its database has a revision of %d bytes, so it is not etcd's", len(k))
			}
			return nil
		})
	})
}

// Restore creates a member's data folder from a snapshot, for a new cluster. Stop all members and
// move their folders away. Then call Restore for each member, with the same Members, snapshot and
// time, and start the members.
//
// The argument at names this restore: use the time at which it began. The new cluster's id depends
// on at, so the backends of processes from before the restore, or from an earlier restore, return
// core.ErrStoreChanged. The first process that opens a namespace raises its tokens above all
// former tokens (rule I2). If the snapshot is of a cluster that was itself restored, this is possible 100 s
// after the earlier restore.
//
// Restore checks its arguments and the snapshot before it writes anything. If Restore is interrupted,
// Start refuses the folder until Restore has been called again.
func Restore(ctx context.Context, c Config, path string, at time.Time) (err error) {
	c, self, err := c.checked(ctx)
	if err != nil {
		return err
	}
	if at.Year() < 2000 || at.Year() > 9999 {
		return invalid("%v is not the time of a restore: use the time at which it began, the same for all members", at)
	}
	if err := CheckSnapshot(path); err != nil {
		return err
	}
	f, err := openFolder(&c, self)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if f.begun && !f.id.Restoring {
		return invalid("%s contains the data of member %q: move it away", c.Dir, c.Name)
	}
	id := identity{Cluster: c.Cluster, Member: c.Name, Peer: self.Peer, Restoring: true,
		Restored: at.UTC().Format(time.RFC3339Nano)}
	part, member := filepath.Join(c.Dir, restorePart), filepath.Join(c.Dir, "member")
	if err = f.write(id); err == nil {
		err = errors.Join(os.RemoveAll(part), os.RemoveAll(member), context.Cause(ctx))
	}
	if err == nil { // only Close of a Member sets closing
		err = snapshot.NewV3(logger(c.Logger, new(atomic.Bool))).Restore(snapshot.RestoreConfig{
			SnapshotPath: path, Name: c.Name, OutputDataDir: part, PeerURLs: []string{c.PeerTLS.url(self.Peer)},
			InitialCluster: c.initial(), InitialClusterToken: c.Cluster + " restored " + id.Restored,
			RevisionBump: bump, MarkCompacted: true})
	}
	if err == nil {
		err = errors.Join(syncDir(filepath.Join(part, "member", "snap")), syncDir(filepath.Join(part, "member")))
	}
	if err == nil {
		err = errors.Join(os.Rename(filepath.Join(part, "member"), member), os.Remove(part), syncDir(c.Dir))
	}
	if id.Restoring = false; err == nil {
		err = f.write(id)
	}
	if err != nil {
		return c.failed("was not restored: call Restore again", err)
	}
	return nil
}
