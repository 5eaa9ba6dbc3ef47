package stores_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/share"
)

// TestNoGaps follows many entries while they are being written, and then follows them again from
// the first entry. It expects each entry, in order, with the entry's payload.
func TestNoGaps(t *testing.T) {
	on(t, func(t *testing.T, p place) {
		n := share.Of(t, "entries", *entries, *entries/10)
		if !p.many {
			n /= 10
		}
		open := p.open(t)
		o := newOwner(t, open())
		shards := []driver.ShardID{"a", "b", "c"}
		const batch = 100
		began := time.Now()
		live, applied := contiguous(t)
		f := run(t, open(), nil, live)
		for made := 0; made < n; {
			for _, s := range shards {
				o.append(s, batch)
				made += batch
			}
		}
		made := 0
		for _, s := range shards {
			f.until(string(s), o.head[s].Seq)
			made += int(o.head[s].Seq)
		}
		took := time.Since(began)
		f.end()
		late, again := contiguous(t)
		began = time.Now()
		f = run(t, open(), &follower.Options{ReadRate: -1}, late)
		for _, s := range shards {
			f.until(string(s), o.head[s].Seq)
		}
		t.Logf("%s: %d entries made and followed in %v, followed again in %v", p.name, made,
			took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		f.end()
		if a, b := applied.Load(), again.Load(); a != int64(made) || b != int64(made) {
			t.Errorf("applied %d and %d of %d entries", a, b, made)
		}
	})
}

func contiguous(t testing.TB) (follower.Applier, *atomic.Int64) {
	var mu sync.Mutex
	last := make(map[core.ShardID]core.Seq)
	count := new(atomic.Int64)
	return follower.Memory(func(_ context.Context, b follower.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range b.Entries {
			if e.Seq != last[e.Shard]+1 || string(e.Payload) != strconv.Itoa(int(e.Seq)) {
				t.Errorf("shard %s: entry %d with payload %.20q came after entry %d", e.Shard, e.Seq, e.Payload,
					last[e.Shard])
			}
			last[e.Shard] = e.Seq
			count.Add(1)
		}
		return nil
	}, nil), count
}

// TestLag measures the time from when an entry's commit is sent until a follower on another backend
// applies it, at 1,000 entries per second.
func TestLag(t *testing.T) {
	on(t, func(t *testing.T, p place) {
		open := p.open(t)
		o := newOwner(t, open())
		zero := time.Now()
		var mu sync.Mutex
		var sent, acked []time.Duration
		f := run(t, open(), nil, follower.Memory(func(_ context.Context, b follower.Batch) error {
			now := time.Since(zero)
			mu.Lock()
			defer mu.Unlock()
			for _, e := range b.Entries {
				if len(e.Payload) == 8 {
					sent = append(sent, now-time.Duration(binary.LittleEndian.Uint64(e.Payload)))
				}
				acked = append(acked, now)
			}
			return nil
		}, nil))
		f.until("s", o.append("s", 1))
		n := int(lagFor.Seconds() * 1000)
		reader := open()
		g := ample.Beside(t, 25*time.Millisecond, func() { _, _ = reader.Get(t.Context(), "s", "none") })
		began := time.Now()
		var acks []time.Duration
		last := core.Seq(0)
		for i := range n {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Millisecond))) // the pace
			stamp := binary.LittleEndian.AppendUint64(nil, uint64(time.Since(zero)))
			w := driver.Write{Fence: o.fence["s"], Number: o.head["s"].Number + 1, Nonce: 1,
				Ops: []driver.Op{core.Append(stamp)}}
			r, err := o.s.Commit(t.Context(), []driver.Write{w})
			if err != nil || r[0].Err != nil {
				t.Fatal(err, r)
			}
			o.head["s"] = r[0].Head
			last = r[0].Head.Seq
			acks = append(acks, time.Since(zero))
		}
		f.until("s", last)
		f.end()
		lag := make([]time.Duration, n)
		for i := range lag {
			lag[i] = max(0, acked[i+1]-acks[i])
		}
		slices.Sort(sent)
		slices.Sort(lag)
		made := float64(n) / (acks[n-1] - acks[0]).Seconds()
		t.Logf("%s: at %.0f entries/s, lag after the acknowledgment: median %v, p99 %v; since sending: median "+
			"%v, p99 %v", p.name, made,
			lag[n/2].Round(time.Microsecond), lag[n*99/100].Round(time.Microsecond), sent[n/2].Round(time.Microsecond),
			sent[n*99/100].Round(time.Microsecond))
		if p.pushed {
			g.AtMost("the median of an entry's way", lag[n/2], 50*time.Millisecond)
		}
	})
}

// TestBoundedMemory writes far more entries than fit into the memory limit, while an Applier
// blocks.
func TestBoundedMemory(t *testing.T) {
	p := places()[1]
	open := p.open(t)
	o := newOwner(t, open())
	free := make(chan struct{})
	var busy sync.Once
	started := make(chan struct{})
	var applied atomic.Int64
	f := run(t, open(), &follower.Options{Buffer: 4 << 20},
		follower.Memory(func(ctx context.Context, b follower.Batch) error {
			busy.Do(func() { close(started) })
			select {
			case <-free:
			case <-ctx.Done():
			}
			for _, e := range b.Entries {
				if !bytes.HasPrefix(e.Payload, []byte(strconv.Itoa(int(e.Seq)))) {
					return errors.New("a payload is another entry's")
				}
			}
			applied.Add(int64(len(b.Entries)))
			return ctx.Err()
		}, nil))
	shards := make([]driver.ShardID, 100)
	for i := range shards {
		shards[i] = driver.ShardID("s" + strconv.Itoa(i))
		o.append(shards[i], 1)
	}
	<-started
	before := heap()
	made := 0
	highest := uint64(0)
	for range ample.During(*blocked, 0) {
		for _, s := range shards {
			o.appendSized(s, 16, 4<<10)
			made += 16 * 4 << 10
			if made >= 256<<20 {
				break
			}
		}
		highest = max(highest, heap())
		if made >= 256<<20 {
			time.Sleep(time.Second) // enough entries have been written; the rest are waiting
		}
	}
	grown := int64(highest) - int64(before)
	t.Logf("%d MiB made while the applier was blocked for %v: the heap grew by %.1f MiB", made>>20, *blocked,
		float64(grown)/(1<<20))
	// The bound covers the buffer, a page of the stream, and 16 first batches of at most 64
	// entries.
	if bound := int64(4<<20 + 8<<20 + 16*64*(4<<10+96)); grown > bound {
		t.Errorf("the heap grew by %d bytes, above %d", grown, bound)
	}
	close(free)
	want := int64(0)
	for _, s := range shards {
		f.until(string(s), o.head[s].Seq)
		want += int64(o.head[s].Seq)
	}
	f.end()
	if got := applied.Load(); got != want {
		t.Errorf("applied %d of %d entries", got, want)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
