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

const tailMax = 1024

// The Tailer's only TailLog stream announces entries, and delivers some of them, which cursors may
// buffer. Cursors read all other entries from the log.
func (t *Tailer) stream(ctx context.Context) {
	var cursor driver.Cursor
	for attempt := 0; ctx.Err() == nil; {
		err := error(nil)
		if attempt > 0 {
			// The stream's next call may wait for a long time. Until the call returns, the Tailer
			// knows neither the missed entries nor whether the stream works.
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

// resync reads all heads to find entries that the stream missed.
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

// pulse reads all heads while Fresh is called. Without these reads, the Tailer would not notice
// that the stream hangs or that this process was paused. Failures are ignored here, because resync
// reports them.
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

// An instant keeps two clocks, because the monotonic clock stops while the machine sleeps.
type instant struct{ mono, wall time.Time }

func instantOf(at time.Time) instant { return instant{mono: at, wall: at.Round(0)} }

// If the wall clock was set forward, a proof looks older than it is, and the Tailer needs a new
// proof.
func (i instant) age(now time.Time) time.Duration {
	return max(now.Sub(i.mono), now.Round(0).Sub(i.wall))
}

// After the stream has failed, afresh is true.
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

// unheard records that the stream or a read of all heads has failed, and waits before the next
// attempt. If no further attempt is allowed, unheard returns false.
func (t *Tailer) unheard(ctx context.Context, why *error, err error, attempt int) bool {
	if errors.Is(err, core.ErrStoreChanged) || errors.Is(err, core.ErrClosed) {
		t.halt(err)
		return false
	}
	t.mu.Lock()
	*why = err
	t.doubt()
	t.mu.Unlock()
	t.report("", Position{}, attempt, err)
	return t.backOff(ctx, attempt)
}

// doubt makes every cursor verify the entry at its position before it applies more entries. A store
// that was unreachable may return with a different history (T8), without entries that the stream
// has delivered.
func (t *Tailer) doubt() {
	for _, s := range t.shards {
		for _, l := range s.cursors {
			l.verify = true
			t.cut(l, len(l.buf))
		}
	}
}

func (t *Tailer) reset(heads []driver.ShardHead, sent time.Time) {
	t.heads(heads, sent, true)
	t.event(Event{Kind: Reset, Count: len(heads)})
}

func (t *Tailer) event(e Event) {
	if t.o.OnEvent != nil {
		t.o.OnEvent(e)
	}
}

// heads records every shard's head. If the stream broke between earlier news and these heads,
// afresh is true. If a shard's head is missing or behind a position, the shard's cursors read the
// log again, because the head may be older than what they have read.
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
		news := h.Head.Seq > s.head // the stream has not delivered this entry, so the stream may hang
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
		t.broken = nil // the stream itself may still be waiting before its next attempt
	}
}

// deaf returns why the Tailer may lack news, or nil.
func (t *Tailer) deaf() error {
	if t.broken != nil {
		return t.broken
	}
	return t.blind
}

// If the Tailer had no news for some time, the entry may have been written at any moment during
// that time.
func (t *Tailer) learn(s *shard, seq core.Seq, now time.Time) {
	if t.deaf() != nil || !t.known {
		now = t.sure
	}
	s.learn(seq, now)
}

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

// report passes a failure to OnEvent and, at growing intervals, to the log (D1).
func (t *Tailer) report(applier string, at Position, attempt int, err error) {
	t.event(Event{Kind: Failed, Applier: applier, Position: at, Count: attempt, Err: err})
	if _, say := t.lines.Failed(applier+"/"+at.Shard, time.Now()); say {
		t.o.Logger.LogAttrs(context.Background(), slog.LevelWarn, "tenure: follower failed, trying again",
			slog.String("applier", applier),
			slog.String("shard", at.Shard), slog.Int64("after", int64(at.Seq)), slog.Int("attempt", attempt),
			slog.Any("error", err))
	}
}

// worked logs that a call has succeeded again after a number of failures, and returns 0.
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
