package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

func example() *entry {
	return &entry{nonce: nonce{1}, prev: nonce{2}, number: 7, rev: 9, pace: 20 * time.Millisecond, writer: "w", txns: [][]kv.Op{
		{{Key: "app/a", Value: []byte("1")}, {Key: "app/b", Delete: true}}, {{Key: "app/c", Value: []byte{}}},
	}}
}

func exampleCheckpoint() []byte {
	c := &checkpoint{id: nonce{1}, nonce: nonce{2}, number: 7, rev: 9, pairs: []kv.Pair{
		{Key: "app/a", Value: []byte("1"), Rev: 3}, {Key: "app/b", Value: []byte("2"), Rev: 9},
	}}
	var b bytes.Buffer
	if err := c.encodeTo(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// sealed returns b with a hash that fits.
func sealed(b []byte) []byte {
	sum := sha256.Sum256(b)
	return append(bytes.Clone(b), sum[:]...)
}

func TestCodec(t *testing.T) {
	t.Parallel()
	want := example()
	text := want.encode()
	got, err := decodeEntry(text, 7, "app")
	if err != nil || fmt.Sprint(*got) != fmt.Sprint(*want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	c, err := decodeCheckpoint(bytes.NewReader(exampleCheckpoint()), len(exampleCheckpoint()), 7, "app", 1<<20)
	if err != nil || len(c.pairs) != 2 || string(c.pairs[1].Value) != "2" || c.rev != 9 {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := decodeEntry(text, 8, "app"); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("an entry under another number answers %v", err)
	}
	if _, err := decodeEntry(text, 7, "other"); !errors.Is(err, driver.ErrDamaged) {
		t.Errorf("an entry of another namespace answers %v", err)
	}
}

// TestHostileBytes decodes damaged objects, with and without a hash that fits.
func TestHostileBytes(t *testing.T) {
	t.Parallel()
	decode := map[string]func([]byte) error{
		string(example().encode()): func(b []byte) error { _, err := decodeEntry(b, 7, "app"); return err },
		string(exampleCheckpoint()): func(b []byte) error {
			_, err := decodeCheckpoint(bytes.NewReader(b), len(b), 7, "app", 1<<20)
			return err
		},
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for text, decode := range decode {
		for i := range len(text) {
			b := []byte(text)
			b[i] ^= 1 << rng.IntN(8)
			if err := decode(b); !errors.Is(err, driver.ErrDamaged) {
				t.Errorf("byte %d of %.8q changed: %v", i, text, err)
			}
			if err := decode([]byte(text[:i])); !errors.Is(err, driver.ErrDamaged) {
				t.Errorf("%.8q cut after %d bytes: %v", text, i, err)
			}
		}
		if err := decode([]byte(text + "x")); err == nil {
			t.Errorf("%.8q followed by a byte is accepted", text)
		}
		body := text[:len(text)-sha256.Size]
		for range 20_000 {
			b := []byte(body)
			for range 1 + rng.IntN(3) {
				b[len(entryFormat)+rng.IntN(len(b)-len(entryFormat))] = byte(rng.Uint32())
			}
			_ = decode(sealed(b)) // it returns, and allocates no more than the object has
		}
		// A count, and then a length, that the object does not have.
		for at := headerSize; at < len(body); at++ {
			if err := decode(sealed(binary.AppendUvarint([]byte(body[:at]), 1<<62))); err == nil {
				t.Errorf("%.8q with a huge number at %d is accepted", text, at)
			}
		}
	}
}

// filled returns a bucket whose log has n entries, and a store that is open on it.
func filled(t *testing.T, n int, change func(*config)) (*cloud, *store) {
	fake := newCloud()
	conf := testConfig(fake, "app", true)
	if change != nil {
		change(&conf)
	}
	s, err := prepare(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	more(t, s, n)
	return fake, s
}

func more(t *testing.T, s *store, n int) {
	for range n {
		if _, err := s.Apply(t.Context(), put("app/k", false)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStoreChanged: an open store notices that the bucket was emptied, emptied and used again, or
// restored, with a read, a heartbeat, or a watch.
func TestStoreChanged(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*testing.T, *cloud, map[string][]byte){
		"emptied":  func(_ *testing.T, c *cloud, _ map[string][]byte) { c.restore(nil) },
		"restored": func(_ *testing.T, c *cloud, old map[string][]byte) { c.restore(old) },
		"emptied and used again": func(t *testing.T, c *cloud, _ map[string][]byte) {
			c.restore(nil)
			s, err := prepare(t.Context(), testConfig(c, "app", true))
			if err != nil {
				t.Fatal(err)
			}
			more(t, s, 40)
			closeAll(t, s)
		},
	} {
		for how, call := range map[string]func(*testing.T, *store) error{
			"a read": func(t *testing.T, s *store) error { _, err := s.Get(t.Context(), "app/k"); return err },
			"a heartbeat": func(t *testing.T, s *store) error {
				_, err := s.Apply(t.Context(), put("app/k", true))
				return err
			},
			"a watch": func(t *testing.T, s *store) error {
				err := s.Watch(t.Context(), []string{"app/"}, 0, func(kv.Rev, []kv.Change) error { return nil })
				return err
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				fake, s := filled(t, 10, nil)
				old := fake.snapshot()
				more(t, s, 5)
				change(t, fake, old)
				if err := call(t, s); !errors.Is(err, driver.ErrStoreChanged) {
					t.Errorf("%s of a bucket that was %s answers %v", how, what, err)
				}
				_, err := s.Apply(t.Context(), put("app/k", false))
				if !errors.Is(err, driver.ErrStoreChanged) {
					t.Errorf("a write after %s of a bucket that was %s answers %v", how, what, err)
				}
				closeAll(t, s)
			})
		}
	}
}

// TestLargeObjects: a process replays many objects that are larger than those it reads ahead.
func TestLargeObjects(t *testing.T) {
	t.Parallel()
	fake, s := filled(t, 3, nil)
	defer closeAll(t, s)
	const large = 20
	for i := range large {
		_, err := s.Apply(t.Context(), &kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{
			{Key: "app/large", Value: bytes.Repeat([]byte{byte(i)}, 2*ahead)},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	more(t, s, 3)
	other, err := prepare(t.Context(), testConfig(fake, "app", false))
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, other)
	page, err := other.Get(t.Context(), "app/large")
	if err != nil || page.Rev != 3+large+3 || len(page.Pairs[0].Value) != 2*ahead || page.Pairs[0].Value[0] != large-1 {
		t.Errorf("another process reads up to revision %d, %d bytes: %v", page.Rev, len(page.Pairs[0].Value), err)
	}
}

// TestDeletedBeginning: if the log's first objects are gone, Create begins no second log.
func TestDeletedBeginning(t *testing.T) {
	t.Parallel()
	fake, s := filled(t, 10, nil)
	defer closeAll(t, s)
	fake.mu.Lock()
	for n := range int64(3) {
		delete(fake.objects, s.logName(n+1))
	}
	fake.mu.Unlock()
	before := fake.names("!log")
	_, err := open(t.Context(), testConfig(fake, "app", true))
	if !errors.Is(err, driver.ErrStoreChanged) || !strings.Contains(err.Error(), "is 4, and there is no checkpoint") {
		t.Errorf("an open answers %v", err)
	}
	if after := fake.names("!log"); len(after) != len(before) {
		t.Errorf("it wrote to the log: %v, %v before", after, before)
	}
	more(t, s, 3) // a running process is not concerned
}

// TestForeignObjects: an object with another predecessor counts as empty; one that cannot be read
// is named, and nothing is written after it.
func TestForeignObjects(t *testing.T) {
	t.Parallel()
	fake, s := filled(t, 3, nil)
	defer closeAll(t, s)
	place := func(text []byte) {
		fake.mu.Lock()
		defer fake.mu.Unlock()
		fake.objects[s.logName(s.next())] = text
	}
	foreign := example()
	foreign.number = s.next()
	place(foreign.encode())
	more(t, s, 2)
	page, err := s.Get(t.Context(), "app/a", "app/k")
	if err != nil || page.Pairs[0].Rev != 0 || page.Pairs[1].Rev != 5 {
		t.Errorf("a read answers %+v, %v", page, err)
	}
	for _, text := range [][]byte{[]byte("x"), {}, make([]byte, maxEntry+1)} {
		place(text)
		name := s.logName(s.next())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := s.Apply(ctx, put("app/k", false))
		_, rerr := s.Get(ctx, "app/k")
		cancel()
		for what, err := range map[string]error{"a write": err, "a read": rerr} {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s beyond %d bytes of no use answers %v, want an error that names %s", what, len(text), err, name)
			}
		}
		if !driver.Unknown(err) {
			t.Errorf("a write beyond an object of no use answers %v", err)
		}
	}
}

// TestCheckpoints: objects before the last checkpoint but one go, and a new process begins at a
// checkpoint. If checkpoints fail, there are warnings at growing intervals.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		fake, s := filled(t, 0, func(c *config) {
			c.every, c.keep = 4, 8
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		step := func(n int) {
			for range n {
				more(t, s, 1)
				time.Sleep(time.Second)
			}
		}
		step(40)
		if got := len(fake.names("!log")); got > 13 {
			t.Errorf("%d objects are left: %v", got, fake.names("!log"))
		}
		if got := fake.names("!checkpoint"); len(got) != 2 {
			t.Errorf("the checkpoints are %v", got)
		}
		other, err := prepare(t.Context(), testConfig(fake, "app", false))
		if err != nil {
			t.Fatal(err)
		}
		page, err := other.Get(t.Context(), "app/k")
		if err != nil || page.Pairs[0].Rev != 40 || page.Rev != 40 {
			t.Errorf("a new process reads %+v, %v", page, err)
		}
		closeAll(t, other)
		fake.fault = func(kind, _ string) (c course) {
			if kind == "put" {
				c.lost, c.err = true, &codedError{"https://x?sig=secret is denied", 0}
			}
			return c
		}
		step(40)
		if n := strings.Count(log.String(), "level=WARN"); n != 4 || strings.Contains(log.String(), "secret") {
			t.Errorf("ten checkpoints that failed made %d lines, want 4:\n%s", n, log.String())
		}
		closeAll(t, s)
	})
}

// TestFull: a namespace that would become too large refuses writes, but not heartbeats or deletes.
func TestFull(t *testing.T) {
	t.Parallel()
	_, s := filled(t, 1, nil)
	defer closeAll(t, s)
	s.mu.Lock()
	s.state.bytes = maxRecords
	s.mu.Unlock()
	if _, err := s.Apply(t.Context(), put("app/more", false)); !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("a write to a full namespace answers %v", err)
	}
	if _, err := s.Apply(t.Context(), put("app/beat", true)); err != nil {
		t.Errorf("a heartbeat in a full namespace answers %v", err)
	}
	if _, err := s.Apply(t.Context(), &kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{{Key: "app/k", Delete: true}}}}}); err != nil {
		t.Errorf("a delete in a full namespace answers %v", err)
	}
	large := &kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{{Key: "app/k", Value: make([]byte, maxEntry)}}}}}
	if _, err := s.Apply(t.Context(), large); !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("a write larger than an object answers %v", err)
	}
}
