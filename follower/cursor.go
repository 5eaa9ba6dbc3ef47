package follower

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/errtext"
	"github.com/tenure-go/tenure/internal/goexit"
)

const (
	// A cursor's first batch has firstLimit entries, because the entries' sizes are not known yet.
	firstLimit = 64
	// After a batch of more than batchBytes, the next batch has fewer entries.
	batchBytes = 1 << 20
	// entryBytes is the memory, in bytes, that an entry takes in addition to its payload.
	entryBytes = 96
)

// cursor is one Applier's progress in one shard's log. A cursor has a goroutine only while it is
// busy. Tailer.mu guards it.
type cursor struct {
	f *followed
	s *shard

	pos   Position // position of the last applied entry
	taken core.Seq // last entry that was applied, or is in the batch that is being applied
	// The stream's entries in buf are contiguous, and come after the entry taken. If entries
	// between taken and buf are missing, the cursor reads them from the log.
	buf   []core.Entry
	bytes int // size of buf

	limit   int  // number of entries in the next batch
	busy    bool // its goroutine runs
	verify  bool // compare the entry at pos, if any, before anything is applied
	suspect bool // the shard's head was seen behind pos, so verify immediately
	err     error
}

func (l *cursor) due() bool {
	return l.suspect || l.s.head > l.pos.Seq || l.ready()
}

func (l *cursor) ready() bool { return len(l.buf) > 0 && l.buf[0].Seq == l.pos.Seq+1 }

// offer buffers an entry from the stream if the entry follows the buffered entries.
func (t *Tailer) offer(l *cursor, e core.Entry) {
	if e.Seq <= l.taken {
		return
	}
	if n := len(l.buf); n > 0 && e.Seq != l.buf[n-1].Seq+1 {
		return
	}
	size := len(e.Payload) + entryBytes
	if l.bytes+size > t.o.Buffer/64 || t.buffered+size > t.o.Buffer {
		return
	}
	l.buf = append(l.buf, e)
	l.bytes += size
	t.buffered += size
}

func (t *Tailer) cut(l *cursor, n int) []core.Entry {
	head := l.buf[:n:n]
	for i := range head {
		size := len(head[i].Payload) + entryBytes
		l.bytes -= size
		t.buffered -= size
	}
	if l.buf = l.buf[n:]; len(l.buf) == 0 {
		l.buf = nil
	}
	return head
}

func (t *Tailer) skip(l *cursor, seq core.Seq) {
	n := 0
	for n < len(l.buf) && l.buf[n].Seq <= seq {
		n++
	}
	t.cut(l, n)
}

func (t *Tailer) start(l *cursor) {
	if t.phase != running || l.busy || !l.due() {
		return
	}
	l.busy = true
	t.all.Go(func() { t.work(t.ctx, l) })
}

func (t *Tailer) work(ctx context.Context, l *cursor) {
	for attempt := 0; ; {
		select {
		case l.f.slots <- struct{}{}:
		case <-ctx.Done():
			t.rest(l)
			return
		}
		var more bool
		err := goexit.Call(func() (err error) { more, err = t.advance(ctx, l); return err })
		<-l.f.slots
		switch {
		case ctx.Err() != nil:
			t.rest(l)
			return
		case err == nil:
			attempt = t.worked(l.f.name, string(l.s.id), attempt)
			if more {
				continue
			}
			return
		case errors.Is(err, core.ErrStoreChanged):
			t.halt(err)
			t.rest(l)
			return
		}
		attempt++
		t.failed(l, err, attempt)
		if errors.Is(err, ErrMoved) && t.reload(ctx, l) > 0 {
			attempt = 0 // a commit whose reply was lost, or another process, has applied the entry
			continue
		}
		if !t.backOff(ctx, attempt) {
			t.rest(l)
			return
		}
	}
}

func (t *Tailer) rest(l *cursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.busy = false
}

func (t *Tailer) failed(l *cursor, err error, attempt int) {
	t.mu.Lock()
	l.err = err
	l.taken = l.pos.Seq
	l.verify = true // the store may be a different one when it answers again
	l.limit = 1     // so that the failing entry does not hold back other entries
	if errors.Is(err, ErrOrder) {
		t.cut(l, len(l.buf)) // the buffered entries are read again
	}
	from := l.pos
	t.mu.Unlock()
	t.report(l.f.name, from, attempt, err)
}

// reload loads the shard's position from the Applier, and returns how many entries the known
// position was behind.
func (t *Tailer) reload(ctx context.Context, l *cursor) (ahead core.Seq) {
	saved, err := t.positions(ctx, l.f)
	if errors.Is(err, core.ErrStoreChanged) {
		t.halt(err)
	}
	if err != nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := saved[l.s.id]
	if !ok {
		p = Position{Shard: string(l.s.id)}
	}
	if ahead = p.Seq - l.pos.Seq; ahead > 0 {
		l.err = nil
	}
	t.moveTo(l, p)
	return ahead
}

// moveTo sets a cursor's position to its Applier's position.
func (t *Tailer) moveTo(l *cursor, p Position) {
	t.skip(l, p.Seq)
	if p.Seq < l.pos.Seq {
		l.s.reopen()
	}
	l.pos, l.taken, l.verify = p, p.Seq, true
	l.s.prune()
	l.s.changed.wake()
}

// If there was no work, more is false and the cursor is no longer busy.
func (t *Tailer) advance(ctx context.Context, l *cursor) (more bool, err error) {
	b, more, err := t.next(ctx, l)
	if _, trimmed := errors.AsType[*core.TrimmedError](err); trimmed {
		return true, t.restore(ctx, l, err)
	}
	if err != nil || len(b.Entries) == 0 {
		return more, err
	}
	began := time.Now()
	if err := l.f.applier.Apply(ctx, b); err != nil {
		return true, errtext.Errorf("tenure: follower %q: shard %q: applying entry %d: %w", l.f.name, b.From.Shard,
			b.From.Seq+1, err)
	}
	size := 0
	for i := range b.Entries {
		size += len(b.Entries[i].Payload) + entryBytes
	}
	last := b.Last()
	t.mu.Lock()
	l.pos, l.err = last, nil
	switch {
	case size > batchBytes:
		l.limit = max(1, len(b.Entries)/2)
	case len(b.Entries) == l.limit:
		l.limit = min(2*l.limit, t.o.Batch)
	}
	l.s.prune()
	l.s.changed.wake()
	t.mu.Unlock()
	t.event(Event{Kind: Applied, Applier: l.f.name, Position: last, Count: len(b.Entries), Took: time.Since(began)})
	return true, nil
}

func (t *Tailer) next(ctx context.Context, l *cursor) (b Batch, more bool, err error) {
	t.mu.Lock()
	if !l.due() {
		l.busy = false
		t.mu.Unlock()
		return Batch{}, false, nil
	}
	b = Batch{Store: t.store, From: l.pos}
	verify, suspect, limit, head := l.verify && l.pos.Seq > 0, l.suspect, l.limit, l.s.head
	if !verify && l.ready() {
		b.Entries = t.cut(l, min(len(l.buf), limit))
		l.taken = b.Last().Seq
		t.mu.Unlock()
		return b, true, inOrder(b)
	}
	l.verify, l.suspect = false, false // if either is set again during this read, another read follows
	t.mu.Unlock()

	page, err := t.read(ctx, l, b.From, limit, verify)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		l.verify, l.suspect = l.verify || verify, l.suspect || suspect
		return Batch{}, true, err
	}
	if l.verify && !verify && b.From.Seq > 0 {
		return b, true, nil // the head and the applied entries may belong to different histories
	}
	b.Entries = page.Entries
	t.learn(l.s, page.Head.Seq, time.Now())
	if len(b.Entries) == 0 {
		// The store may have lost entries since the known head was read, so the known head counts
		// only if it has changed since this read began.
		if l.s.head == head {
			l.s.lower(page.Head.Seq)
		}
		return b, true, nil
	}
	l.taken = b.Last().Seq
	t.skip(l, l.taken)
	return b, true, nil
}

// If verify is set, read also reads the entry at the position, which must be the entry that was
// applied.
func (t *Tailer) read(ctx context.Context, l *cursor, from Position, limit int, verify bool) (*core.LogPage, error) {
	overlap := 0
	if verify {
		overlap = 1
	}
	page, err := t.readLog(ctx, l.s.id, from.Seq-core.Seq(overlap), limit+overlap)
	if trimmed, ok := errors.AsType[*core.TrimmedError](err); ok && verify && trimmed.Oldest <= from.Seq+1 {
		// No entry is missing, but the entry at the position was trimmed and cannot be compared.
		overlap = 0
		page, err = t.readLog(ctx, l.s.id, from.Seq, limit)
	}
	if err != nil {
		return nil, err
	}
	if page.Head.Seq < from.Seq {
		return nil, &StoreChangedError{Applier: l.f.name, Position: from,
			Found: fmt.Sprintf("its log ends at entry %d", page.Head.Seq)}
	}
	if overlap == 1 {
		if len(page.Entries) == 0 || page.Entries[0].Seq != from.Seq {
			return nil, fmt.Errorf("tenure: shard %q: %w: the head is entry %d, but reading entry %d gave another "+
				"or none", from.Shard, ErrOrder, page.Head.Seq, from.Seq)
		}
		if got := page.Entries[0].Token; got != from.Token {
			return nil, &StoreChangedError{Applier: l.f.name, Position: from,
				Found: fmt.Sprintf("that entry has token %d", got)}
		}
		page.Entries = page.Entries[1:]
	}
	if len(page.Entries) == 0 && page.Head.Seq > from.Seq && limit > 0 {
		return nil, fmt.Errorf("tenure: shard %q: %w: the head is entry %d, but reading after entry %d gave none",
			from.Shard, ErrOrder, page.Head.Seq, from.Seq)
	}
	return page, inOrder(Batch{From: from, Entries: page.Entries})
}

// inOrder checks that the entries follow the position, and one another, without gaps (L1, T1, T2).
func inOrder(b Batch) error {
	at := b.From
	for i := range b.Entries {
		got := Position{Shard: at.Shard, Seq: b.Entries[i].Seq, Token: b.Entries[i].Token}
		if got.Seq != at.Seq+1 || got.Token < at.Token {
			return fmt.Errorf("tenure: shard %q: %w: entry %d with token %d came after entry %d with token %d", at.Shard,
				ErrOrder, got.Seq, got.Token, at.Seq, at.Token)
		}
		at = got
	}
	return nil
}

func (t *Tailer) readLog(ctx context.Context, id core.ShardID, after core.Seq, limit int) (*core.LogPage, error) {
	select {
	case t.reads <- struct{}{}:
		defer func() { <-t.reads }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if !wait(ctx, t.pace.turn(time.Now())) {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, t.o.CallTimeout)
	defer cancel()
	page, err := t.b.ReadLog(ctx, id, after, limit)
	if err != nil {
		return nil, errtext.Errorf("tenure: shard %q: reading after entry %d: %w", id, after, err)
	}
	return page, nil
}
