package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
)

// worker contains a member's handler. The handler writes to its shard as fast as pace allows, and
// reads its writes back.
type worker struct {
	process  string
	pace     time.Duration
	patience time.Duration // for one write
	rec      *history.Recorder
	journal  *journal
	writes   atomic.Int64
}

// itemKey is the item that each write sets to the entry it appends.
const itemKey = "last"

// readEvery is the number of writes per read.
const readEvery = 16

func (w *worker) serve(ctx context.Context, lease *core.Lease) error {
	f := lease.Fence()
	w.journal.add(note{Is: noteStarted, Shard: f.Shard, Token: f.Token})
	believing := w.believe(lease)
	err := w.write(ctx, lease)
	believing()
	w.rec.Distrust(f)
	w.journal.add(note{Is: noteStopped, Shard: f.Shard, Token: f.Token, Why: why(ctx, lease, err)})
	return err
}

// The result is a short text that explains why the handler returns.
func why(ctx context.Context, lease *core.Lease, err error) string {
	var revoked *core.RevokedError
	switch {
	case errors.As(lease.Err(), &revoked):
		return revoked.Cause
	case ctx.Err() != nil:
		return context.Cause(ctx).Error()
	}
	return fmt.Sprintf("returned: %v", err)
}

// believe records how long the lease is trusted, now and at each heartbeat that extends the trust,
// until stop is called.
func (w *worker) believe(lease *core.Lease) (stop func()) {
	var until history.Instant
	look := func() {
		now := history.Now() // before Remaining, so the time is too short rather than too long
		left := lease.Remaining()
		if end := now + history.Instant(left); left > 0 && end > until+history.Instant(time.Millisecond) {
			until = end
			w.rec.Trust(lease.Fence(), until)
		}
	}
	look()
	quit := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		t := time.NewTicker(max(w.patience/200, time.Millisecond))
		defer t.Stop()
		for {
			select {
			case <-t.C:
				look()
			case <-quit:
				return
			}
		}
	})
	return func() {
		close(quit)
		looking.Wait()
	}
}

func (w *worker) write(ctx context.Context, lease *core.Lease) error {
	f := lease.Fence()
	t := time.NewTimer(0)
	defer t.Stop()
	for i := 0; ; i++ {
		select {
		case <-t.C:
			t.Reset(w.pace)
		case <-ctx.Done():
			return nil
		}
		if i%readEvery == 0 {
			if err := w.read(lease); err != nil {
				return err
			}
		}
		head := lease.Head().Seq
		p := payload{Process: w.process, N: w.writes.Add(1), Token: f.Token, Head: head}
		b := p.encode()
		n := note{Is: noteWrites, Shard: f.Shard, Token: f.Token, N: p.N, Digest: history.Digest(b)}
		w.journal.add(n)
		seq, err := w.commit(lease, b)
		n.Is = noteWrote
		switch {
		case err == nil:
			n.Out, n.Seq = wasAccepted, seq
			if seq != head+1 {
				w.wrong(f, "entry %d was appended where the lease knew the head %d", seq, head)
			}
		case core.NotApplied(err):
			n.Out, n.Why = wasRefused, err.Error()
		default:
			n.Out, n.Why = wasUnknown, err.Error()
		}
		w.journal.add(n)
		if err != nil && !(errors.Is(err, core.ErrRetry) && lease.Err() == nil) {
			return err
		}
	}
}

func (w *worker) commit(lease *core.Lease, b []byte) (driver.Seq, error) {
	// commit does not use the lease's context, because core must determine the outcome of a write
	// that was in flight when the lease was lost.
	ctx, cancel := context.WithTimeout(context.Background(), w.patience)
	defer cancel()
	c, err := lease.Commit(ctx, core.Append(b), core.Put(itemKey, b))
	return c.Last, err
}

// read compares the log's last entry and the item with what the lease knows about them. After each
// read, core has checked that the lease was valid.
func (w *worker) read(lease *core.Lease) error {
	ctx, cancel := context.WithTimeout(lease.Context(), w.patience)
	defer cancel()
	f, head := lease.Fence(), lease.Head()
	if head.Seq == 0 {
		return nil
	}
	page, err := lease.ReadLog(ctx, head.Seq-1, 1)
	if err != nil {
		return err
	}
	item, err := lease.Get(ctx, itemKey)
	if err != nil {
		return err
	}
	switch {
	case len(page.Entries) != 1 || page.Head.Seq != head.Seq:
		w.wrong(f, "the log has its head at %d, where the lease knows %d", page.Head.Seq, head.Seq)
	case item == nil || !bytes.Equal(item.Value, page.Entries[0].Payload):
		w.wrong(f, "the item differs from entry %d, which was written with it", head.Seq)
	}
	return nil
}

func (w *worker) wrong(f driver.Fence, format string, args ...any) {
	w.journal.add(note{Is: noteWrong, Shard: f.Shard, Token: f.Token, Wrong: fmt.Sprintf(format, args...)})
}
