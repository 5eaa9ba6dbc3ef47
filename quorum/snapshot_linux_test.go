package quorum

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestRestore: a cluster is restored twice from one snapshot. Each time, the process that holds the
// shard, and has written after the snapshot, continues to run. It must not pass the fence.
func TestRestore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	procs := c.first(true)
	client := func(name string) *proc {
		return c.run(setting{Config: Config{Cluster: "test", Name: name, Members: c.of.Members}, ClientOnly: true})
	}
	holder := client("before")
	c.progress()
	signals := func(s syscall.Signal) {
		if err := holder.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signals(syscall.SIGSTOP)
	path := filepath.Join(c.root, "snapshot")
	o := operates(t, c.of)
	if err := o.Snapshot(bounded(t), path); err != nil {
		t.Fatal(err)
	}
	last := core.Seq(0) // of the snapshot, or one that came directly after
	for n := range c.log() {
		last = max(last, n)
	}
	signals(syscall.SIGCONT)
	for round := range 2 {
		c.progress()
		for _, p := range procs {
			p.end(syscall.SIGKILL)
		}
		at := time.Now()
		for name := range procs {
			s := c.setting(name)
			s.Dir, s.Idle = filepath.Join(c.root, fmt.Sprint(name, round)), true
			s.Logger = slog.New(slog.DiscardHandler)
			if err := Restore(bounded(t), s.Config, path, at); err != nil {
				t.Fatal(err)
			}
			s.Logger = nil
			procs[name] = c.run(s)
		}
		for _, p := range procs {
			p.await("started")
		}
		former := holder
		holder = client(fmt.Sprint("after", round))
		former.says("session halted", "was restored or replaced")
	}
	c.progress()
	log := c.log()
	c.mu.Lock()
	for payload, n := range c.acked {
		if n > last && !strings.HasPrefix(payload, holder.name) {
			if log[n] == payload {
				t.Errorf("the log has entry %d %q of a process from before the restore", n, payload)
			}
			delete(c.acked, payload)
		}
	}
	c.mu.Unlock()
	c.check()
}

func operates(t *testing.T, c Config) *Operator {
	t.Helper()
	o, err := Operate(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// TestSnapshotRefused: torn, damaged and foreign files are refused before anything is written, and
// Start refuses the folder of an interrupted restore.
func TestSnapshotRefused(t *testing.T) {
	t.Parallel()
	c := alone(t)
	m := started(t, c)
	sqlfault.Join(t, open(t, m), "n1")
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if err := m.Snapshot(bounded(t), good); err != nil {
		t.Fatal(err)
	}
	if err := CheckSnapshot(good); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Snapshot(ended, good); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	if err := m.Snapshot(bounded(t), dir); err == nil {
		t.Error("a snapshot replaced a folder")
	}
	if err := m.Snapshot(bounded(t), filepath.Join(dir, "none", "x")); err == nil {
		t.Error("a snapshot was written to a folder that does not exist")
	}
	busy, err := fileutil.TryLockFile(good+".part", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, nil, m.Snapshot(bounded(t), good), "another process writes")
	if err := errors.Join(busy.Close(), os.Remove(good+".part"), CheckSnapshot(good)); err != nil {
		t.Errorf("the former snapshot: %v", err)
	}

	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(b []byte) []byte { h := sha256.Sum256(b); return append(b[:len(b):len(b)], h[:]...) }
	body := text[:len(text)-sha256.Size]
	flipped := append([]byte(nil), text...)
	flipped[len(flipped)/2] ^= 1
	zeroed := append([]byte(nil), body...)
	clear(zeroed[2*os.Getpagesize():])
	into := c
	into.Dir = filepath.Join(dir, "restored")
	at := time.Now()
	for name, b := range map[string][]byte{
		"incomplete": text[:len(text)/1024*512], "without hash": body, "empty": nil, "damaged": flipped,
		"only a hash": signed(nil), "a text": []byte("hello"), "a signed text": signed(make([]byte, 4096)),
		"without pages": signed(body[:len(body)/2/4096*4096]), "zeroed": signed(zeroed), "another database": signed(otherDatabase(t)),
	} {
		path := filepath.Join(dir, "bad")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Log(name)
		refused(t, nil, CheckSnapshot(path), path, "use a file that Snapshot wrote")
		refused(t, nil, Restore(bounded(t), into, path, at), path)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{fifo: "not a file", dir: "not a file", filepath.Join(dir, "none"): "no such file"} {
		refused(t, nil, Restore(bounded(t), into, path, at), path, words)
	}
	refused(t, nil, Restore(bounded(t), into, good, time.Time{}), "not the time")
	if _, err := os.Stat(into.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data folder was created: %v", err)
	}
	refused(t, nil, Restore(bounded(t), c, good, at), "another member uses")
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	refused(t, nil, Restore(bounded(t), c, good, at), "contains the data", "move it away")

	if err := Restore(ended, into, good, at); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "again") {
		t.Errorf("with an ended context: %v", err)
	}
	for _, begin := range []func(context.Context, Config) (*Member, error){Start, Replace} {
		again, err := begin(bounded(t), into)
		refused(t, again, err, "did not end", "call Restore again")
	}
	if err := Restore(bounded(t), into, good, at); err != nil {
		t.Fatal(err)
	}
	refused(t, nil, Restore(bounded(t), into, good, at), "contains the data")
	into.Create = false
	started(t, into)
}

// otherDatabase returns a database that is not etcd's.
func otherDatabase(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("notes"))
		return err
	}), db.Close())
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
