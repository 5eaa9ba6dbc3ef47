package follower

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/core"
)

// tailMax is about how many entries one page of the stream has.
const tailMax = 1024

// stream is the process's one TailLog stream. It only says what there is, and
// brings entries that lanes may keep; what it does not bring is read.
func (t *Tailer) stream(ctx context.Context) {
	var cursor core.Cursor
	for attempt := 0; ctx.Err() == nil; {
		err := error(nil)
		if attempt > 0 {
			// The next call may wait for long without a word of what was missed, and
			// of whether it works.
			err = t.readHeads(ctx)
		}
		var page *core.TailPage
		quiet, sent := false, time.Now()
		if err == nil {
			call, cancel := context.WithTimeout(ctx, t.o.Resync)
			page, err = t.b.TailLog(call, cursor, tailMax)
			quiet = call.Err() != nil && cursor != ""
			cancel()
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			attempt = 0
			cursor = page.Cursor
			if page.Reset {
				t.heads(page.Heads, sent, true)
			}
			t.entries(page.Entries)
		case quiet:
			attempt = 0
		default:
			attempt++
			if !t.unheard(ctx, fmt.Errorf("tenure: following the log: %w", err), attempt) {
				return
			}
		}
	}
}

// resync reads all heads from time to time, which finds what the stream missed.
func (t *Tailer) resync(ctx context.Context) {
	pause := t.o.Resync
	for attempt := 0; wait(ctx, pause); {
		err := t.readHeads(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			attempt, pause = 0, t.o.Resync
		default:
			attempt++
			if !t.unheard(ctx, fmt.Errorf("tenure: reading the heads: %w", err), attempt) {
				return
			}
			pause = 0
		}
	}
}

func (t *Tailer) readHeads(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, t.o.CallTimeout)
	defer cancel()
	sent := time.Now()
	page, err := t.b.TailLog(call, "", tailMax)
	if err == nil {
		t.heads(page.Heads, sent, false)
	}
	return err
}

// unheard takes in that the stream, or the reading of heads, failed, and waits
// before it is tried again. It is false if that is for good.
func (t *Tailer) unheard(ctx context.Context, err error, attempt int) bool {
	if errors.Is(err, core.ErrStoreChanged) || errors.Is(err, core.ErrClosed) {
		t.halt(err)
		return false
	}
	t.mu.Lock()
	t.broken = err
	t.mu.Unlock()
	t.report(Failure{Attempt: attempt, Err: err})
	return t.backOff(ctx, attempt)
}

// heads takes in every shard's head. A shard whose head is behind a position, or
// missing, is looked at once more: what a page says may be older than what its
// lane has read meanwhile.
func (t *Tailer) heads(heads []core.ShardHead, sent time.Time, reset bool) {
	now := time.Now()
	t.mu.Lock()
	t.sweep++
	for _, h := range heads {
		s := t.shard(h.Shard)
		if s == nil {
			continue
		}
		s.sweep = t.sweep
		s.learn(h.Head.Seq, now)
		for _, l := range s.lanes {
			l.verify = l.verify || reset && l.pos.Seq > 0
			if h.Head.Seq < l.pos.Seq {
				l.verify, l.suspect = true, true
			}
			t.start(l)
		}
	}
	for _, s := range t.shards {
		if s.sweep == t.sweep {
			continue
		}
		for _, l := range s.lanes {
			if l.pos.Seq > 0 {
				l.verify, l.suspect = true, true
				t.start(l)
			}
		}
	}
	t.known = t.phase == running
	if sent.After(t.sure) {
		t.sure = sent
	}
	t.broken = nil
	t.mu.Unlock()
	if h := t.o.Hooks.OnReset; reset && h != nil {
		h(len(heads))
	}
}

// entries takes in what the stream brought.
func (t *Tailer) entries(entries []core.Entry) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	var s *shard
	for i := range entries {
		e := entries[i]
		if s == nil || s.id != e.Shard {
			if s = t.shard(e.Shard); s == nil {
				continue
			}
		}
		s.learn(e.Seq, now)
		for _, l := range s.lanes {
			t.offer(l, e)
			t.start(l)
		}
	}
	t.sure, t.broken = now, nil
}

func (t *Tailer) report(f Failure) {
	if h := t.o.Hooks.OnError; h != nil {
		h(f)
	}
	if t.o.Logger != nil {
		t.o.Logger.LogAttrs(context.Background(), slog.LevelWarn, "tenure: follower failed, trying again", slog.String("applier", f.Applier),
			slog.String("shard", f.From.Shard), slog.Int64("after", int64(f.From.Seq)), slog.Int("attempt", f.Attempt), slog.Any("error", f.Err))
	}
}
