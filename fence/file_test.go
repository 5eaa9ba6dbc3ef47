package fence_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/fence"
)

func openFile(t *testing.T, path string) *fence.File {
	t.Helper()
	f, err := fence.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func raise(t *testing.T, s fence.Storage, resource string, f driver.Fence) {
	t.Helper()
	if got, err := s.Raise(t.Context(), resource, f); err != nil || got != f {
		t.Fatalf("raising %s to %v: got %v, %v", resource, f, got, err)
	}
}

// TestFileSurvives cuts the file off after every byte, as a crash may. No mark that was confirmed
// before the last raise is lost.
func TestFileSurvives(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "marks")
	s := openFile(t, path)
	raise(t, s, "a", lease("s", 1))
	raise(t, s, "b", lease("s", 2))
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raise(t, s, "a", lease("u", 3))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(before); cut <= len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		s := openFile(t, path)
		want := lease("s", 1)
		if cut == len(whole) {
			want = lease("u", 3)
		}
		if got, err := s.Raise(t.Context(), "a", lease("z", 1)); err != nil || got != want {
			t.Fatalf("cut at %d of %d: got %v, %v, want %v", cut, len(whole), got, err, want)
		}
		raise(t, s, "a", lease("v", 4)) // must be appended after the cut, at the beginning of a line
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openFile(t, path)
		if got, err := s.Raise(t.Context(), "a", lease("z", 1)); err != nil || got != lease("v", 4) {
			t.Fatalf("cut at %d: after a raise and a reopening: %v, %v", cut, got, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFileDamage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "marks")
	s := openFile(t, path)
	raise(t, s, "a", lease("s", 1))
	raise(t, s, "a", lease("s", 2))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[20] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fence.OpenFile(path); err == nil || !strings.Contains(err.Error(), "line 1") ||
		!strings.Contains(err.Error(), path) {
		t.Fatalf("got %v, want an error that names the file and the line", err)
	}
	// OpenFile neither holds the refused file open nor has changed it.
	if err := os.WriteFile(path, text[:0], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := openFile(t, path).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFileRewritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "marks")
	s := openFile(t, path)
	for i := range driver.Token(150) {
		raise(t, s, fmt.Sprint("r", i%3), lease("s", i+1))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openFile(t, path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n != 46 {
		t.Errorf("reopened with %d lines, want 3 that were rewritten after 107, and 43 since", n)
	}
	raise(t, s, "r0", lease("s", 1000))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openFile(t, path)
	for r, want := range map[string]driver.Token{"r0": 1000, "r1": 149, "r2": 150} {
		if got, err := s.Raise(t.Context(), r, lease("z", 1)); err != nil || got.Token != want {
			t.Errorf("%s: got %v, %v, want token %d", r, got, err, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Raise(t.Context(), "r0", lease("z", 1)); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if left, err := filepath.Glob(path + ".new*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestMarksAreBounded: callers that choose the names of resources cannot fill memory or the disk.
func TestMarksAreBounded(t *testing.T) {
	t.Parallel()
	var m fence.Memory
	for i := range 100_000 {
		raise(t, &m, fmt.Sprint("r", i), lease("s", 1))
	}
	if _, err := m.Raise(t.Context(), "r", lease("s", 1)); err == nil || !strings.Contains(err.Error(), "the limit") {
		t.Errorf("one mark too many: got %v", err)
	}
	raise(t, &m, "r7", lease("s", 2))

	path := filepath.Join(t.TempDir(), "marks")
	s := openFile(t, path)
	for i := range driver.Token(500) {
		raise(t, s, "r", lease("s", i+1))
	}
	text, err := os.ReadFile(path)
	if n := strings.Count(string(text), "\n"); err != nil || n > 102 {
		t.Errorf("the file has %d lines of one mark, %v", n, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openFile(t, path)
	defer s.Close()
	if got, err := s.Raise(t.Context(), "r", lease("z", 1)); err != nil || got.Token != 500 {
		t.Errorf("got %v, %v, want token 500", got, err)
	}
}

// TestFileIsPrivate: other users cannot read the files at any time.
func TestFileIsPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "marks")
	s := openFile(t, path)
	raise(t, s, "r", lease("a", 1))
	for _, name := range []string{path, path + ".lock"} {
		if info, err := os.Lstat(name); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s is %v, %v", name, info, err)
		}
	}
}

func TestFileSecondProcessRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "marks")
	s := openFile(t, path)
	// For flock, a second open file is like another process.
	if _, err := fence.OpenFile(path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Fatalf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openFile(t, path).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFileNoFolder(t *testing.T) {
	t.Parallel()
	if _, err := fence.OpenFile(filepath.Join(t.TempDir(), "missing", "marks")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v", err)
	}
}
