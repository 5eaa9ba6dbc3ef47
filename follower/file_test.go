package follower

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
)

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "positions")
	f := NewFile(path)
	if err := f.Save(t.Context(), "store", Position{"s", 1, 1}); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("saved before it was loaded: %v", err)
	}
	if cp, err := f.Load(t.Context()); err != nil || cp.Store != "" || cp.Positions != nil {
		t.Fatalf("a file that is not there gives %+v, %v", cp, err)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for seq := range 10 {
				if err := f.Save(context.Background(), "store",
					Position{fmt.Sprint("s", i), core.Seq(seq + 1), 7}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	cp, err := NewFile(path).Load(t.Context())
	if err != nil || cp.Store != "store" || len(cp.Positions) != 20 {
		t.Fatalf("loaded %+v, %v", cp, err)
	}
	for _, p := range cp.Positions {
		if p.Seq != 10 || p.Token != 7 {
			t.Errorf("loaded %v", p)
		}
	}
	if left, err := filepath.Glob(path + "?*"); err != nil || left != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestFileLoadsBesideSave: a Load does not undo a Save in progress.
func TestFileLoadsBesideSave(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "positions")
	f := NewFile(path)
	if _, err := f.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.writing.Lock() // this Save waits for its turn, as it would behind a slow Save
	saved := make(chan error, 1)
	go func() { saved <- f.Save(context.Background(), "store", Position{"s", 5, 7}) }()
	for has := false; !has; {
		f.mu.Lock()
		_, has = f.at["s"]
		f.mu.Unlock()
		runtime.Gosched()
	}
	loaded := make(chan error, 1)
	go func() {
		cp, err := f.Load(context.Background())
		if err == nil && len(cp.Positions) != 1 {
			err = fmt.Errorf("loaded %+v", cp)
		}
		loaded <- err
	}()
	select {
	case err := <-loaded:
		loaded <- err
	case <-time.After(50 * time.Millisecond): // Load also waits for its turn
	}
	f.writing.Unlock()
	for _, c := range []chan error{saved, loaded} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	if cp, err := NewFile(path).Load(t.Context()); err != nil || len(cp.Positions) != 1 || cp.Positions[0].Seq != 5 {
		t.Errorf("the file has %+v, %v", cp, err)
	}
}

// TestFileDamage: every single changed or missing byte is noticed.
func TestFileDamage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "positions")
	good := encodeFile(Checkpoint{Store: "0123abcd", Positions: []Position{{"a", 1, 2}, {"b", 30, 4}}})
	if _, err := decodeFile(good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		changed := slices.Clone(good)
		changed[i] ^= 1
		for _, bad := range [][]byte{changed, good[:i], slices.Delete(slices.Clone(good), i, i+1)} {
			if cp, err := decodeFile(bad); err == nil {
				t.Errorf("%q was read as %+v", bad, cp)
			}
		}
	}
	if err := os.WriteFile(path, good[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewFile(path).Load(t.Context()); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) {
		t.Errorf("Load says %v", err)
	}
}

// TestFileIsPrivate: other users cannot read the file. If another user puts a link at the temporary
// path, the link is not followed.
func TestFileIsPrivate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, victim := filepath.Join(folder, "positions"), filepath.Join(folder, "victim")
	for _, plant := range []func() error{
		func() error { return os.Symlink(victim, path+".new") },
		func() error { return os.WriteFile(path+".new", nil, 0o666) },
	} {
		if err := errors.Join(os.WriteFile(victim, []byte("kept"), 0o600), plant()); err != nil {
			t.Fatal(err)
		}
		f := NewFile(path)
		if _, err := f.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.Save(t.Context(), "store", Position{"s", 1, 1}); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(victim); err != nil || string(text) != "kept" {
			t.Errorf("the victim has %q, %v", text, err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("the file is %v, %v", info, err)
		}
	}
}

// TestFileFails: a save that does not reach the disk returns an error and leaves the file
// unchanged.
func TestFileFails(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	f := NewFile(filepath.Join(folder, "positions"))
	if _, err := f.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(t.Context(), "store", Position{"s", 1, 1}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Save says %v", err)
	}
}

func FuzzFile(f *testing.F) {
	f.Add(encodeFile(Checkpoint{}))
	f.Add(encodeFile(Checkpoint{Store: "x",
		Positions: []Position{{"a", 1, 2}, {"a", 1, 2}, {"b.c-d_9", 1 << 60, 1 << 62}}}))
	f.Add([]byte(fileHead + fileTail + "00000000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cp, err := decodeFile(data)
		if err != nil {
			return
		}
		if got := encodeFile(cp); string(got) != string(data) {
			t.Errorf("%q was read as %+v, which is written as %q", data, cp, got)
		}
		for _, p := range cp.Positions {
			if err := p.check(); err != nil {
				t.Error(err)
			}
		}
	})
}

func FuzzPosition(f *testing.F) {
	f.Add("orders-1:17:42")
	f.Add("a:0:0")
	f.Add("a:-1:+2")
	f.Add("a:9223372036854775808:1")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePosition(s)
		if err != nil {
			if !errors.Is(err, core.ErrInvalid) {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		if p.String() != s || p.check() != nil {
			t.Errorf("%q was read as %+v", s, p)
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":2,"current":{"name":"1-2-0123456789abcdef","seq":2,"token":1,"bytes":3,"sha256":"00","chunks":1},"next":{"name":"3-4-0123456789abcdef","seq":4,"token":1,"blob":true}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeManifest(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%q: %v", data, err)
			}
			return
		}
		for _, p := range []*part{m.Current, m.Next, m.Gone} {
			if p == nil {
				continue
			}
			if err := core.CheckShard(p.Name); err != nil {
				t.Errorf("%q names a key %q: %v", data, p.Name, err)
			}
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeManifest(text); err != nil && len(text) <= maxManifest {
			t.Errorf("%q is written as %q, which is read with %v, %+v", data, text, err, again)
		}
	})
}
