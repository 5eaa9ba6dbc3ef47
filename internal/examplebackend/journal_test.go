package examplebackend

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

func openClient(t *testing.T, dir string, compactAt int64) *client {
	t.Helper()
	c, err := newClient(dir, &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	c.journal.compactAt = compactAt
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func write(t *testing.T, c *client, key, value string) kv.Rev {
	t.Helper()
	out, err := c.Apply(t.Context(), &kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{{Key: key, Value: []byte(value)}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Rev
}

func value(t *testing.T, c *client, key string) string {
	t.Helper()
	page, err := c.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(page.Pairs[0].Value)
}

// TestTornLine leaves every beginning of a line behind the last whole one, as a
// process does that is killed while it appends.
func TestTornLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, openClient(t, dir, defaultCompactAt), "k", "whole")
	path := filepath.Join(dir, "journal")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	next, err := encodeLine(line{Rev: 2, Set: []record{{Key: "k", Value: []byte("torn")}}})
	if err != nil {
		t.Fatal(err)
	}
	zeroed := append(bytes.Repeat([]byte{0}, len(next)-1), '\n') // a length that was synced before its bytes
	tails := [][]byte{zeroed}
	for n := 1; n < len(next); n++ {
		tails = append(tails, next[:n])
	}
	for i, tail := range tails {
		if err := os.WriteFile(path, append(bytes.Clone(whole), tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		c := openClient(t, dir, defaultCompactAt)
		if got := value(t, c, "k"); got != "whole" {
			t.Fatalf("behind %q: k is %q, want %q", tail, got, "whole")
		}
		if i%20 != 0 { // a sync each
			continue
		}
		if rev := write(t, c, "k", "after"); rev != 2 {
			t.Fatalf("behind %q: the write has revision %d, want 2", tail, rev)
		}
		if got := value(t, openClient(t, dir, defaultCompactAt), "k"); got != "after" {
			t.Fatalf("behind %q: k is %q after a write, want %q", tail, got, "after")
		}
	}
}

func TestDamagedLineRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openClient(t, dir, defaultCompactAt)
	write(t, c, "k", "one")
	write(t, c, "k", "two")
	path := filepath.Join(dir, "journal")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[sumLen+3] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := openClient(t, dir, defaultCompactAt)
	if _, err := damaged.Get(t.Context(), "k"); err == nil || !strings.Contains(err.Error(), "damaged at byte 0") {
		t.Errorf("reading a damaged journal: %v", err)
	}
	_, err = damaged.Apply(t.Context(), &kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{{Key: "k"}}}}})
	if !errors.Is(err, driver.ErrRetry) {
		t.Errorf("writing to a damaged journal: %v; want one that was not applied", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, text) {
		t.Errorf("a refused write changed a damaged journal, %v", err)
	}
}

// TestCompaction writes one key until the journal was rewritten several times,
// beside a reader that has it open.
func TestCompaction(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, reader := openClient(t, dir, 2000), openClient(t, dir, 2000)
	kept := write(t, c, "kept", "still here")
	if got := value(t, reader, "kept"); got != "still here" {
		t.Fatalf("kept is %q", got)
	}
	before := reader.journal.loads
	last := kept
	for i := range 200 {
		rev := write(t, c, "k", strconv.Itoa(i))
		if rev != last+1 {
			t.Fatalf("revision %d after %d", rev, last)
		}
		last = rev
	}
	page, err := reader.Get(t.Context(), "kept", "k")
	if err != nil {
		t.Fatal(err)
	}
	if page.Rev != last || page.Pairs[0].Rev != kept || string(page.Pairs[0].Value) != "still here" ||
		string(page.Pairs[1].Value) != "199" {
		t.Errorf("after compaction the reader has %+v; want revision %d, kept at %d, k 199", page, last, kept)
	}
	if reader.journal.loads == before {
		t.Error("the journal was never rewritten")
	}
	if info, err := os.Stat(filepath.Join(dir, "journal")); err != nil || info.Size() > 4000 {
		t.Errorf("the journal has %d bytes, %v; want few more than 2000", info.Size(), err)
	}
	never := func(kv.Rev, []kv.Change) error { return errors.New("called") }
	if err := reader.Watch(t.Context(), []string{"k"}, kept, never); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("a watch from before the compaction: %v; want ErrCompacted", err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	decode := func(s Settings) func(any) error {
		return func(into any) error { *into.(*Settings) = s; return nil }
	}
	for name, s := range map[string]Settings{
		"no directory":      {Namespace: "ns", Options: Options{Create: true}},
		"missing directory": {Dir: dir, Namespace: "ns"},
		"bad namespace":     {Dir: dir, Namespace: "../ns", Options: Options{Create: true}},
		"bad poll period":   {Dir: dir, Namespace: "ns", Options: Options{Create: true, PollPeriod: 1}},
	} {
		if _, err := Opener().Open(t.Context(), decode(s)); err == nil {
			t.Errorf("%s: opened; want an error", name)
		}
	}
	b, err := Opener().Open(t.Context(), decode(Settings{Dir: dir, Namespace: "ns", Options: Options{Create: true}}))
	if err != nil {
		t.Fatal(err)
	}
	if info := b.Info(); info.Backend != Name || info.Limits.PollPeriod != DefaultPollPeriod {
		t.Errorf("got %+v", info)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
