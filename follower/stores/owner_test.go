package stores_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// owner owns shards and appends to their logs. It uses only the driver. It is not safe for
// concurrent use.
type owner struct {
	t     testing.TB
	s     driver.Session
	fence map[driver.ShardID]driver.Fence
	head  map[driver.ShardID]driver.Head
}

func newOwner(t testing.TB, b driver.Backend) *owner {
	t.Helper()
	s, err := b.Join(t.Context(), driver.Member{Session: "owner", Node: "owner", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return &owner{t: t, s: s, fence: make(map[driver.ShardID]driver.Fence), head: make(map[driver.ShardID]driver.Head)}
}

// append appends n entries, each with its number as payload, and returns the last number.
func (o *owner) append(shard driver.ShardID, n int) driver.Seq {
	o.t.Helper()
	return o.appendSized(shard, n, 0)
}

// appendSized is like append, but pads each payload to size bytes.
func (o *owner) appendSized(shard driver.ShardID, n, size int) driver.Seq {
	o.t.Helper()
	if _, ok := o.fence[shard]; !ok {
		r, err := o.s.Acquire(o.t.Context(), []driver.Claim{{Shard: shard}})
		if err != nil || r[0].Err != nil {
			o.t.Fatal(err, r)
		}
		o.fence[shard], o.head[shard] = r[0].Fence, r[0].Head
	}
	ops := make([]driver.Op, n)
	for i := range ops {
		payload := make([]byte, 0, max(size, 20))
		payload = strconv.AppendInt(payload, int64(o.head[shard].Seq)+int64(i)+1, 10)
		ops[i] = core.Append(payload[:max(size, len(payload))])
	}
	w := driver.Write{Fence: o.fence[shard], Number: o.head[shard].Number + 1, Nonce: driver.Nonce(rand.Uint64() | 1),
		Ops: ops}
	for {
		r, err := o.s.Commit(o.t.Context(), []driver.Write{w})
		if err == nil {
			err = r[0].Err
		}
		if errors.Is(err, driver.ErrRetry) {
			continue
		}
		if err != nil {
			o.t.Fatalf("shard %s: commit: %v", shard, err)
		}
		o.head[shard] = r[0].Head
		return r[0].Head.Seq
	}
}

type follow struct {
	*follower.Tailer
	t    testing.TB
	stop context.CancelFunc
	done chan error
}

func run(t testing.TB, b driver.Backend, o *follower.Options, a follower.Applier) *follow {
	t.Helper()
	tailer, err := follower.NewTailer(b, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := tailer.Follow("test", a, "*"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := &follow{Tailer: tailer, t: t, stop: cancel, done: make(chan error, 1)}
	go func() { f.done <- tailer.Run(ctx) }()
	return f
}

func (f *follow) end() {
	f.t.Helper()
	f.stop()
	if err := <-f.done; err != nil {
		f.t.Errorf("Run returned %v, want nil", err)
	}
}

func (f *follow) until(shard string, seq core.Seq) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ample.Time)
	defer cancel()
	if err := f.WaitFor(ctx, shard, seq); err != nil {
		f.t.Fatalf("waiting for entry %d of %s: %v", seq, shard, err)
	}
}
