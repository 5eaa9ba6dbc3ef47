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

// tailMax is about how many entries one page of the stream has.
const tailMax = 1024

// stream is the process's one TailLog stream. It announces entries and brings some
// that cursors may keep; cursors read the rest.
func (t *Tailer) stream(ctx context.Context) {
	var cursor driver.Cursor
	for attempt := 0; ctx.Err() == nil; {
		err := error(nil)
		if attempt > 0 {
			// The next call may wait for long without reporting the missed entries,
			// or whether it works.
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

// resync reads all heads from time to time, which finds entries that the stream missed.
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

// pulse reads all heads while Fresh is asked: a stream that hangs, and a process that
// was stopped, do not know it by themselves. Failures are for resync to report; here
// they are no proof.
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

// instant is a time without its monotonic part beside it, since the monotonic clock
// stops while the machine sleeps.
type instant struct{ mono, wall time.Time }

func instantOf(at time.Time) instant { return instant{mono: at, wall: at.Round(0)} }

// age is by the clock that says more: where the wall clock was set forward a proof is
// older than it is, which costs another.
func (i instant) age(now time.Time) time.Duration {
	return max(now.Sub(i.mono), now.Round(0).Sub(i.wall))
}

// readHeads reads all heads; with anew the stream failed before.
func (t *Tailer) readHeads(ctx context.Context, anew bool) error {
	call, cancel := context.WithTimeout(ctx, t.o.CallTimeout)
	defer cancel()
	sent := time.Now()
	page, err := t.b.TailLog(call, "", tailMax)
	if err == nil {
		t.heads(page.Heads, sent, anew)
	}
	return err
}

// unheard takes in that the stream, or the reading of heads, failed, and waits
// before it is tried again. It is false if that is for good.
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

// doubt has every cursor compare the entry at its position before it applies
// anything more: a store that could not be heard may come back with another history
// (T8), which lacks the entries that the stream brought before.
func (t *Tailer) doubt() {
	for _, s := range t.shards {
		for _, l := range s.cursors {
			l.verify = true
			t.cut(l, len(l.buf))
		}
	}
}

// reset takes in that the stream begins anew.
func (t *Tailer) reset(heads []driver.ShardHead, sent time.Time) {
	t.heads(heads, sent, true)
	if h := t.o.Hooks.OnReset; h != nil {
		h(Reset{Shards: len(heads)})
	}
}

// heads takes in every shard's head; with anew nothing connects them to earlier
// news. A shard whose head is behind a position, or missing, is looked at once
// more: the page may be older than the log that its cursor has read meanwhile.
func (t *Tailer) heads(heads []driver.ShardHead, sent time.Time, anew bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if anew || t.deaf() != nil {
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
		news := h.Head.Seq > s.head // that the stream did not bring: it may hang
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
	if anew {
		t.broken = nil // else the stream may wait yet before it tries again
	}
}

// deaf is why not everything is heard; nil if it is.
func (t *Tailer) deaf() error {
	if t.broken != nil {
		return t.broken
	}
	return t.blind
}

// learn takes in that a shard's log has an entry seq. Where nothing was heard for a
// while, or ever, it may be as old as that.
func (t *Tailer) learn(s *shard, seq core.Seq, now time.Time) {
	if t.deaf() != nil || !t.known {
		now = t.sure
	}
	s.learn(seq, now)
}

// entries takes in a page of the stream.
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

// report reports a failure to the hook, and in a rhythm to the log (D1).
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

// worked logs that what failed attempt times works again, and returns 0.
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
