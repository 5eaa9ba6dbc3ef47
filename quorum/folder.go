package quorum

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/pkg/v3/ioutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

const (
	identityFile = "tenure.json"
	lockFile     = "tenure.lock"
	maxIdentity  = 64 << 10 // in bytes; more is not read
)

// identity names the owner of a data folder. etcd's own files contain only ids.
type identity struct {
	Cluster string `json:"cluster"`
	Member  string `json:"member"`
	Peer    string `json:"peer"`
	Joining bool   `json:"joining"` // Replace has written it

	Restored  string `json:"restored,omitempty"`  // the time that was given to Restore
	Restoring bool   `json:"restoring,omitempty"` // Restore has not ended
}

// folder is a data folder that this process has locked. One goroutine at a time may use it.
type folder struct {
	dir   string
	id    identity // the zero value in an empty folder
	begun bool     // etcd has written its data
	lock  *fileutil.LockedFile
}

// openFolder locks a data folder. If the folder contains anything else than this member's data,
// openFolder writes nothing and returns an error.
func openFolder(c *Config, self Address) (*folder, error) {
	f := &folder{dir: c.Dir}
	if err := f.read(c, self); err != nil {
		return nil, err
	}
	err := os.MkdirAll(f.dir, 0o700)
	if err == nil {
		f.lock, err = fileutil.TryLockFile(filepath.Join(f.dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	}
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, invalid("another member uses the data folder %s: stop it, or set another Dir", f.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("tenure: quorum: create and lock the data folder: %w", err)
	}
	if err := f.read(c, self); err != nil { // another process may have written before the lock
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *folder) read(c *Config, self Address) error {
	file, err := os.Open(filepath.Join(f.dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return f.empty()
	}
	if err == nil {
		err = json.NewDecoder(io.LimitReader(file, maxIdentity)).Decode(&f.id)
		err = errors.Join(err, file.Close())
	}
	f.begun = wal.Exist(filepath.Join(f.dir, "member", "wal"))
	switch {
	case err != nil:
		return fmt.Errorf("tenure: quorum: read %s in %s; if it is damaged, move the folder away and call Replace: %w",
			identityFile, f.dir, err)
	case f.id.Cluster != c.Cluster:
		return invalid("%s contains data of cluster %.80q, not of cluster %q: set another Dir, or correct Cluster", f.dir,
			f.id.Cluster, c.Cluster)
	case f.id.Member != c.Name:
		return invalid("%s contains data of member %.80q, not of member %q: set another Dir, or correct Name", f.dir,
			f.id.Member, c.Name)
	case f.begun && f.id.Peer != self.Peer:
		return invalid("member %q had the peer address %.80q, not %q: use the former address, or move %s away and call "+
			"Replace", c.Name, f.id.Peer, self.Peer, f.dir)
	}
	return nil
}

// empty refuses a folder that contains files of other programs.
func (f *folder) empty() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tenure: quorum: read the data folder: %w", err)
	}
	for _, e := range entries {
		switch e.Name() {
		case lockFile, identityFile + ".new", "lost+found":
		default:
			return invalid("%s contains %.80q, and no data of this package: set Dir to an empty folder", f.dir, e.Name())
		}
	}
	return nil
}

// write stores the identity before etcd writes to the folder.
func (f *folder) write(id identity) error {
	text, err := json.Marshal(id)
	if err != nil {
		return err
	}
	path := filepath.Join(f.dir, identityFile)
	if err = ioutil.WriteAndSyncFile(path+".new", text, 0o600); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err = errors.Join(err, syncDir(f.dir)); err != nil {
		return fmt.Errorf("write to the data folder: %w", err)
	}
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(fileutil.Fsync(dir), dir.Close())
}

func (f *folder) close() error { return f.lock.Close() }
