package certify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tenure-go/tenure/core/driver"
)

// The files of a report.
const (
	markdownFile = "certify.md"
	jsonFile     = "certify.json"
)

// Folder is the folder of a report. The caller must close the Folder.
type Folder struct {
	path string
	root *os.Root // kept open, so later changes of the path have no effect
}

// OpenFolder creates the folder if it is missing, and checks that a report can be written into it.
// Each file of the report must either be missing or be part of an earlier run's report. The folder
// must not be a symbolic link.
func OpenFolder(path string) (*Folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("tenure: the folder for the report: %w", err)
	}
	info, err := os.Lstat(path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%w: %s is no folder, or a symbolic link to one: name the folder itself", driver.ErrInvalid, path)
	}
	if err != nil {
		return nil, fmt.Errorf("tenure: the folder for the report: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("tenure: the folder for the report: %w", err)
	}
	f := &Folder{path, root}
	if err := f.check(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return f, nil
}

// Close closes the folder.
func (f *Folder) Close() error { return f.root.Close() }

// check returns an error if the report would replace a file that it must not replace, or if the
// folder is not writable.
func (f *Folder) check() error {
	for _, x := range []struct{ name, begins string }{{markdownFile, mark}, {jsonFile, "{\n\t\"kind\": \"" + kind + "\""}} {
		info, err := f.root.Lstat(x.name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%w: it is no regular file", driver.ErrInvalid)
		}
		if err == nil {
			err = f.own(x.name, []byte(x.begins))
		}
		if err != nil {
			return fmt.Errorf("tenure: %s: %w: name another folder, or remove it", filepath.Join(f.path, x.name), err)
		}
	}
	const probe = ".certify-probe"
	if err := f.replace(probe, nil); err != nil {
		return err
	}
	return f.root.Remove(probe)
}

// The result is an error if a file exists and is not a report of an earlier run.
func (f *Folder) own(name string, begins []byte) error {
	file, err := f.root.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	start := make([]byte, len(begins))
	if _, err := io.ReadFull(file, start); err != nil || !bytes.Equal(start, begins) {
		return fmt.Errorf("%w: it is no report of tenure certify, and is not replaced", driver.ErrInvalid)
	}
	return nil
}

// replace writes a file atomically.
func (f *Folder) replace(name string, content []byte) error {
	half := name + ".new"
	_ = f.root.Remove(half) // left behind by a run that was killed
	file, err := f.root.OpenFile(half, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("tenure: the report: %w", err)
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err == nil {
		err = f.root.Rename(half, name)
	}
	if err != nil {
		return fmt.Errorf("tenure: the report: %w", errors.Join(err, f.root.Remove(half)))
	}
	return nil
}

// write writes both forms of the report, after checking again which files they would replace.
func (f *Folder) write(r *Report) error {
	if err := f.check(); err != nil {
		return err
	}
	text, err := r.JSON()
	if err != nil {
		return err
	}
	return errors.Join(f.replace(jsonFile, text), f.replace(markdownFile, r.Markdown()))
}
