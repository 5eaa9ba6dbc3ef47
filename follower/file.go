package follower

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/tenure-go/tenure/core"
)

// maxFile is the maximum size, in bytes, of a position file. Such a file has room for about 400,000
// shards.
const maxFile = 64 << 20

// File keeps positions in one small text file with a checksum. Each Save writes a new file under a
// different name, syncs it, renames it, and syncs the folder. Therefore, after a crash, the file
// contains either the old or the new positions. Positions that are saved during a write become part
// of the next write. A File is safe for concurrent use, but several processes must not share a
// file.
type File struct {
	path string

	mu    sync.Mutex
	store string
	at    map[string]Position // nil until the file was read
	saves uint64

	writing sync.Mutex // also guards written
	written uint64     // number of the newest save on disk
}

var _ Positions = (*File)(nil)

// NewFile returns a File for the file at path, which need not exist yet. The file's folder must
// exist. NewFile does no I/O.
func NewFile(path string) *File { return &File{path: path} }

// Load reads the file on its first call. Later calls also return positions that were saved since
// the first call. If the file is damaged, the error matches ErrCorrupt. In this case, either
// restore a copy of the file, or delete the file to apply all entries again.
func (f *File) Load(context.Context) (Checkpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at != nil {
		return f.checkpoint(), nil
	}
	cp, err := readFile(f.path)
	if err != nil {
		return Checkpoint{}, err
	}
	f.store, f.at = cp.Store, make(map[string]Position, len(cp.Positions))
	for _, p := range cp.Positions {
		f.at[p.Shard] = p
	}
	return cp, nil
}

func (f *File) checkpoint() Checkpoint {
	return Checkpoint{Store: f.store, Positions: slices.Collect(maps.Values(f.at))}
}

// Save makes a position durable.
func (f *File) Save(_ context.Context, store string, p Position) error {
	f.mu.Lock()
	if f.at == nil {
		f.mu.Unlock()
		return fmt.Errorf("tenure: %w: position file %q is saved to before it was loaded", core.ErrInvalid, f.path)
	}
	f.store, f.at[p.Shard] = store, p
	f.saves++
	mine := f.saves
	f.mu.Unlock()

	f.writing.Lock()
	defer f.writing.Unlock()
	if f.written >= mine {
		return nil
	}
	f.mu.Lock()
	cp := f.checkpoint()
	covered := f.saves
	f.mu.Unlock()
	if err := writeFile(f.path, encodeFile(cp)); err != nil {
		return fmt.Errorf("tenure: position file: %w", err)
	}
	f.written = covered
	return nil
}

func readFile(path string) (Checkpoint, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Checkpoint{}, nil
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("tenure: position file: %w", err)
	}
	defer file.Close() //nolint:errcheck // the file was only read
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("tenure: position file: %w", err)
	}
	cp, err := decodeFile(data)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("tenure: position file %q is %w: %w; put a copy back, or delete it to have "+
			"everything applied again", path, ErrCorrupt, err)
	}
	return cp, nil
}

// After a crash during writeFile, the file has either the old or the new content.
func writeFile(path string, data []byte) (err error) {
	temp := path + ".new"
	// An earlier process may have left the temporary file behind, which O_EXCL would then refuse.
	// Or another user may have created it, and nothing may be written to another user's file.
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	if runtime.GOOS == "windows" { // Windows cannot sync a folder
		return nil
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

const (
	fileHead = "tenure positions 1\nstore "
	fileTail = "crc32c "
)

// encodeFile encodes the store's identity, one line for each position in the order of shards, and a
// checksum of all lines.
func encodeFile(cp Checkpoint) []byte {
	slices.SortFunc(cp.Positions, func(a, b Position) int { return strings.Compare(a.Shard, b.Shard) })
	var b bytes.Buffer
	b.WriteString(fileHead + cp.Store + "\n")
	for _, p := range cp.Positions {
		b.WriteString(p.String() + "\n")
	}
	fmt.Fprintf(&b, fileTail+"%08x\n", crc32.Checksum(b.Bytes(), crc32.MakeTable(crc32.Castagnoli)))
	return b.Bytes()
}

// decodeFile decodes the output of encodeFile, and returns an error for any other input.
func decodeFile(data []byte) (Checkpoint, error) {
	if len(data) > maxFile {
		return Checkpoint{}, fmt.Errorf("it has more than %d bytes", maxFile)
	}
	end := bytes.LastIndex(data, []byte("\n"+fileTail)) + 1
	if end <= 0 {
		return Checkpoint{}, errors.New("it ends without its checksum")
	}
	var got uint32
	if n, err := fmt.Sscanf(string(data[end:]), fileTail+"%08x\n", &got); n != 1 || err != nil {
		return Checkpoint{}, errors.New("its checksum cannot be read")
	}
	if want := crc32.Checksum(data[:end], crc32.MakeTable(crc32.Castagnoli)); got != want {
		return Checkpoint{}, fmt.Errorf("its checksum is %08x and should be %08x", got, want)
	}
	rest, ok := strings.CutPrefix(string(data[:end]), fileHead)
	if !ok {
		return Checkpoint{}, errors.New("it is of another version")
	}
	var cp Checkpoint
	cp.Store, rest, _ = strings.Cut(rest, "\n")
	for line := range strings.Lines(rest) {
		p, err := ParsePosition(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return Checkpoint{}, err
		}
		cp.Positions = append(cp.Positions, p)
	}
	if !bytes.Equal(encodeFile(cp), data) {
		return Checkpoint{}, errors.New("it is not as it was written")
	}
	return cp, nil
}
