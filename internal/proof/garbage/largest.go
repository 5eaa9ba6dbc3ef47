package garbage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/operator"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/seam"
	"github.com/tenure-go/tenure/sharding"
)

const (
	ofEach   = 32 << 20 // bytes of records below each prefix
	readable = 64 << 20 // bytes by which the heap may grow while members read them
)

// writeLargest makes a member commit the largest records that the store accepts. The records are
// rules, places of nodes that may stop, ends of quarantines, open effects, plans, a load report and
// a note about a range. One plan is valid, and quarantines as many shards as possible. When all
// members read these records, the heap must stay within limits.
func writeLargest(t *testing.T, store Store, planned []string) {
	t.Helper()
	b, err := store.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }() // garbage may make it fail
	s, err := b.Join(t.Context(), driver.Member{Session: "largest", Node: "largest", TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	size := min(b.Info().Limits.WriteBytes-200, 1<<20)
	value := bytes.Repeat([]byte("[],"), size/3)
	n := ofEach / size
	fill(t, s, "effects", n, func(i int) driver.Op { return core.Put(fmt.Sprintf("%so/%d", effect.Prefix, i), value) })
	fill(t, s, "effects", 1, func(int) driver.Op { return core.Put(effect.Prefix+"e/0", value) })
	fill(t, s, assigner, 4, func(int) driver.Op { return core.Append(value) })
	for _, shard := range planned {
		fill(t, s, driver.ShardID(shard), 1, func(int) driver.Op { return core.Put("tenure/load", value) })
		fill(t, s, driver.ShardID(shard), 1, func(int) driver.Op { return core.Put("tenure/range", value) })
	}
	key := func(i int) string {
		return fmt.Sprintf("rule/%s/large-%d", []control.Kind{control.Drain, control.Stop, control.Release}[i%3], i)
	}
	fill(t, s, control.Shard, n, func(i int) driver.Op { return core.Put(key(i), value) })
	before := heap()
	peak, stop := live()
	defer stop()
	if rules, err := control.Read(t.Context(), b); err == nil || len(rules) > control.MaxRules {
		t.Errorf("reading rules of %d bytes gives %d, %v; want an error that names some", size, len(rules), err)
	}
	fill(t, s, assigner, 1, func(int) driver.Op { return core.Append(quarantined(planned, size)) })
	w := &operator.Writer{Backend: b, Timeout: ample.Time}
	if a, err := w.Ask(t.Context(), operator.Question{Node: "honest0", Look: true}); !errors.Is(err, core.ErrDamaged) {
		t.Errorf("asking with places of %d bytes gives %v, %.300v; want ErrDamaged", size, a, err)
	}
	if open, err := effect.ReadOpen(t.Context(), b, "effects", 10_000); !errors.Is(err, core.ErrDamaged) || len(open) > 0 {
		t.Errorf("reading effects of %d bytes gives %d, %.300v; want ErrDamaged", size, len(open), err)
	}
	if e, err := effect.Read(t.Context(), b, "effects", "0"); !errors.Is(err, core.ErrDamaged) {
		t.Errorf("reading an effect of %d bytes gives %v, %.300v; want ErrDamaged", size, e, err)
	}
	time.Sleep(time.Second) // for the members to read the rules, plans and reports
	stop()
	grown := int64(peak.Load()) - int64(before)
	t.Logf("%d records of %d bytes below each prefix: the heap grew by %d KiB at most", n, size, grown>>10)
	if peak.Load() == 0 || grown > readable {
		t.Errorf("the heap grew by %d bytes at most, want less than %d", grown, readable)
	}
	var missing error // each read has a time-out, which a busy machine may exceed
	ample.Soon(t.Context(), func() bool {
		_, aside, err := sharding.ReadPlans(t.Context(), b, seam.Key{})
		if missing = err; err == nil && aside("q00000").Until.IsZero() {
			missing = errors.New("shard q00000 is not in quarantine")
		}
		return err == nil
	})
	if missing != nil {
		t.Errorf("reading a plan of %d bytes with shards in quarantine: %v", size, missing)
	}
	// The following tests use other garbage. If the large records remained, reading them would keep
	// a server busy.
	fill(t, s, control.Shard, n, func(i int) driver.Op { return core.Delete(key(i)) })
	for _, shard := range planned {
		fill(t, s, driver.ShardID(shard), 1, func(int) driver.Op { return core.Delete("tenure/range") })
	}
	if err := s.Close(t.Context()); err != nil {
		t.Logf("the session that wrote the largest records: %v", err)
	}
}

// live runs the garbage collector repeatedly until stop is called, and records the largest heap
// after a collection. Between collections, the heap size depends on the machine's load.
func live() (peak *atomic.Uint64, stop func()) {
	peak = new(atomic.Uint64)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			peak.Store(max(peak.Load(), heap()))
		}
	}()
	return peak, func() { cancel(); <-done }
}

// quarantined returns a plan of the given size, in the format of sharding's encode.go. The plan is
// a base that quarantines as many shards as possible, including those in planned. The rest of the
// plan contains shards whose owners have died.
func quarantined(planned []string, size int) []byte {
	const form, number, base, until = 3, 1 << 40, 1, 1 << 40
	text := func(b []byte, s string) []byte { return append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	names := slices.Clone(planned)
	for i := range size / 16 {
		names = append(names, fmt.Sprintf("q%05d", i))
	}
	b := append(binary.AppendUvarint([]byte{form}, number), 0, 1, base)
	b = binary.AppendUvarint(b, uint64(len(planned)+1))
	for _, s := range append(slices.Clone(planned), fmt.Sprintf("q00000..%05d", size/16-1)) {
		b = text(b, s)
	}
	b = binary.AppendUvarint(b, uint64(len(names)))
	for i, s := range names {
		if b = append(text(b, s), 0); i < keyspace.MaxShards/20 { // no death
			b = append(binary.AppendUvarint(b, until), 0) // no version
		} else {
			b = append(b, 0, 0)
		}
	}
	return append(b, 0, 0, 0, 0) // no keyspace, nobody gone, no member, no move
}

// fill takes a shard and commits n operations, one per call.
func fill(t *testing.T, s driver.Session, shard driver.ShardID, n int, op func(i int) driver.Op) {
	t.Helper()
	var at driver.AcquireResult
	seen := driver.Owner{}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	done := 0
	for done < n {
		if ctx.Err() != nil {
			t.Fatalf("shard %s: %d of %d records written: %v", shard, done, n, at.Err)
		}
		if at.Fence.Token == 0 {
			r, err := s.Acquire(t.Context(), []driver.Claim{{Shard: shard, Seen: seen, Preempt: true}})
			if err != nil {
				t.Fatal(err)
			}
			if at = r[0]; at.Err != nil {
				if held, ok := errors.AsType[*driver.HeldError](at.Err); ok {
					seen = held.Owner
				}
				at.Fence = driver.Fence{}
				continue
			}
		}
		r, err := s.Commit(t.Context(), []driver.Write{{Fence: at.Fence, Number: at.Head.Number + 1, Nonce: driver.Nonce(rand.Uint64() | 1),
			Ops: []driver.Op{op(done)}}})
		if err != nil {
			t.Fatal(err)
		}
		if r[0].Err != nil { // another member took the shard
			at.Fence = driver.Fence{}
			continue
		}
		at.Head = r[0].Head
		done++
	}
}
