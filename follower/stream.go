package follower

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/errtext"
)

// tailMax is the approximate number of entries in one page of the stream.
const tailMax = 1024

// stream runs the process's one TailLog stream. It announces entries and brings some that cursors
// may keep; cursors read the rest.
func (t *Tailer) stream(ctx context.Context) {
	var cursor driver.Cursor
	for attempt := 0; ctx.Err() == nil; {
		err := error(nil)
		if attempt > 0 {
			// The next call may wait long, and report neither the missed entries nor whether it
			// works.
			err = t.readHeads(ctx, true)
		}
		var page *driver.TailPage
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
			attempt = t.worked("", "", attempt)
			cursor = page.Cursor
			if page.Reset {
				t.reset(page.Heads, sent)
			}
			t.entries(page.Entries)
		case quiet:
			attempt = t.worked("", "", attempt)
		default:
			attempt++
			if !t.unheard(ctx, &t.broken, errtext.Errorf("tenure: following the log: %w", err), attempt) {
				return
			}
		}
	}
}

// resync reads all heads every Resync, which finds entries that the stream missed.
func (t *Tailer) resync(ctx context.Context) {
	pause := t.o.Resync
	for attempt := 0; wait(ctx, pause); {
		err := t.readHeads(ctx, false)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			attempt, pause = t.worked("", "", attempt), t.o.Resync
		default:
			attempt++
			if !t.unheard(ctx, &t.blind, errtext.Errorf("tenure: reading the heads: %w", err), attempt) {
				return
			}
			pause = 0
		}
	}
}

// pulse reads all heads while Fresh is called, because neither a stream that hangs nor a process
// that was stopped notices it. It ignores failures, which prove nothing, and which resync
// reports.
func (t *Tailer) pulse(ctx context.Context) {
	for {
		select {
		case <-t.ask:
		case <-ctx.Done():
			return
		}
		for asked := true; asked; {
			_ = t.readHeads(ctx, false)
			if !wait(ctx, t.o.Pulse) {
				return
			}
			t.mu.Lock()
			asked = time.Since(t.asked) < t.o.Resync
			t.mu.Unlock()
		}
	}
}

// instant is a time on the monotonic clock and on the wall clock, since the monotonic clock stops
// while the machine sleeps.
type instant struct{ mono, wall time.Time }

func instantOf(at time.Time) instant { return instant{mono: at, wall: at.Round(0)} }

// age returns the larger age of the two clocks. If the wall clock was set forward, a proof looks
// older than it is, which costs another proof.
func (i instant) age(now time.Time) time.Duration {
	return max(now.Sub(i.mono), now.Round(0).Sub(i.wall))
}

// readHeads reads all heads. The parameter afresh reports whether the stream failed before.
func (t *Tailer) readHeads(ctx context.Context, afresh bool) error {
	call, cancel := context.WithTimeout(ctx, t.o.CallTimeout)
	defer cancel()
	sent := time.Now()
	page, err := t.b.TailLog(call, "", tailMax)
	if err == nil {
		t.heads(page.Heads, sent, afresh)
	}
	return err
}

// unheard records that the stream, or the reading of heads, failed, and waits before the next
// attempt. It returns false if no attempt may follow.
func (t *Tailer) unheard(ctx context.Context, why *error, err error, attempt int) bool {
	if errors.Is(err, core.ErrStoreChanged) || errors.Is(err, core.ErrClosed) {
		t.halt(err)
		return false
	}
	t.mu.Lock()
	*why = err
	t.doubt()
	t.mu.Unlock()
	t.report(Failure{Attempt: attempt, Err: err})
	return t.backOff(ctx, attempt)
}

// doubt has every cursor compare the entry at its position before it applies more entries. A store
// that was out of reach may come back with another history (T8), which lacks the entries that the
// stream brought before.
func (t *Tailer) doubt() {
	for _, s := range t.shards {
		for _, l := range s.cursors {
			l.verify = true
			t.cut(l, len(l.buf))
		}
	}
}

// reset records that the stream begins again.
func (t *Tailer) reset(heads []driver.ShardHead, sent time.Time) {
	t.heads(heads, sent, true)
	if h := t.o.Hooks.OnReset; h != nil {
		h(Reset{Shards: len(heads)})
	}
}

// heads records every shard's head. The parameter afresh reports that nothing connects them to
// earlier news. If a shard's head is behind a position, or missing, its cursors verify it once
// more. The page may be older than the log that they have read since.
func (t *Tailer) heads(heads []driver.ShardHead, sent time.Time, afresh bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if afresh || t.deaf() != nil {
		t.doubt()
	}
	t.sweep++
	gap := t.known && t.proven.age(now) > 2*t.o.Pulse
	for _, h := range heads {
		s := t.shard(h.Shard)
		if s == nil {
			continue
		}
		s.sweep = t.sweep
		news := h.Head.Seq > s.head // the stream did not bring it, so it may hang
		t.learn(s, h.Head.Seq, now)
		if gap {
			s.miss(t.proven)
		}
		for _, l := range s.cursors {
			l.verify = l.verify || news
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
		for _, l := range s.cursors {
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
	if sent.After(t.proven.mono) || sent.Round(0).After(t.proven.wall) {
		t.proven = instantOf(sent)
	}
	t.blind = nil
	if afresh {
		t.broken = nil // otherwise the stream may wait before it tries again
	}
}

// deaf returns the reason why some news may be missing, or nil.
func (t *Tailer) deaf() error {
	if t.broken != nil {
		return t.broken
	}
	return t.blind
}

// learn records that a shard's log has an entry seq. After a time without news, or before the first
// news, the entry may be as old as that time.
func (t *Tailer) learn(s *shard, seq core.Seq, now time.Time) {
	if t.deaf() != nil || !t.known {
		now = t.sure
	}
	s.learn(seq, now)
}

// entries records a page of the stream.
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
		t.learn(s, e.Seq, now)
		for _, l := range s.cursors {
			t.offer(l, e)
			t.start(l)
		}
	}
	t.sure, t.broken, t.blind = now, nil, nil
}

// report passes a failure to the hook and, at growing intervals, to the log (D1).
func (t *Tailer) report(f Failure) {
	if h := t.o.Hooks.OnError; h != nil {
		h(f)
	}
	if _, say := t.lines.Failed(f.Applier+"/"+f.From.Shard, time.Now()); say {
		t.o.Logger.LogAttrs(context.Background(), slog.LevelWarn, "tenure: follower failed, trying again",
			slog.String("applier", f.Applier),
			slog.String("shard", f.From.Shard), slog.Int64("after", int64(f.From.Seq)), slog.Int("attempt", f.Attempt),
			slog.Any("error", f.Err))
	}
}

// worked logs that a call works again after attempt failures, and returns 0.
func (t *Tailer) worked(applier, shard string, attempt int) int {
	if attempt == 0 {
		return 0
	}
	now := time.Now()
	if s, say := t.lines.Worked(applier+"/"+shard, now); say {
		t.o.Logger.LogAttrs(context.Background(), slog.LevelInfo, "tenure: follower works again", slog.String("applier", applier),
			slog.String("shard", shard), slog.Int("failures", s.Failures), slog.Duration("after", now.Sub(s.Since)))
	}
	return 0
}
