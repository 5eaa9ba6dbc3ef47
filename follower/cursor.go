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
	// firstLimit is the size of a cursor's first batch, before the sizes of entries are known.
	firstLimit = 64
	// batchBytes is the size of a batch above which the next batch has fewer entries.
	batchBytes = 1 << 20
	// entryBytes is the cost of an entry in addition to its payload.
	entryBytes = 96
)

// cursor is the progress of one shard in one Applier. While it is busy, a goroutine works for
// it. Otherwise, it costs only its memory. Tailer.mu guards it.
type cursor struct {
	f *followed
	s *shard

	pos   Position // applied
	taken core.Seq // applied, or in the batch that is being applied
	// buf is a contiguous run of entries that came from the stream after taken. Entries missing
	// before it are read.
	buf   []core.Entry
	bytes int // size of buf

	limit   int  // entries of the next batch
	busy    bool // its goroutine runs
	verify  bool // compare the entry at pos, if any, before anything is applied
	suspect bool // its head was seen behind pos: verify immediately
	err     error
}

// due reports whether the cursor has work.
func (l *cursor) due() bool {
	return l.suspect || l.s.head > l.pos.Seq || l.ready()
}

// ready reports whether the next entry is in the buffer.
func (l *cursor) ready() bool { return len(l.buf) > 0 && l.buf[0].Seq == l.pos.Seq+1 }

// offer keeps an entry of the stream if it follows the entries kept.
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

// cut takes the first n entries out of the buffer.
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

// skip drops the buffer's entries up to seq.
func (t *Tailer) skip(l *cursor, seq core.Seq) {
	n := 0
	for n < len(l.buf) && l.buf[n].Seq <= seq {
		n++
	}
	t.cut(l, n)
}

// start starts a goroutine for the cursor if the cursor is due.
func (t *Tailer) start(l *cursor) {
	if t.phase != running || l.busy || !l.due() {
		return
	}
	l.busy = true
	t.all.Go(func() { t.work(t.ctx, l) })
}

// work advances a cursor until it has nothing more to do.
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
			attempt = 0 // it was applied: by a commit whose reply was lost, or elsewhere
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
	l.verify = true // the store may be another one when it answers again
	l.limit = 1     // so that only the failing entry is held back
	if errors.Is(err, ErrOrder) {
		t.cut(l, len(l.buf)) // the entries that came with it are read again
	}
	from := l.pos
	t.mu.Unlock()
	t.report(Failure{Applier: l.f.name, From: from, Attempt: attempt, Err: err})
}

// reload loads the shard's position from the Applier, and returns how far it is ahead of the known
// position.
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

// moveTo sets a cursor's position to its Applier's.
func (t *Tailer) moveTo(l *cursor, p Position) {
	t.skip(l, p.Seq)
	if p.Seq < l.pos.Seq {
		l.s.reopen()
	}
	l.pos, l.taken, l.verify = p, p.Seq, true
	l.s.prune()
	l.s.changed.wake()
}

// advance applies the next batch. more is false if there was nothing to do; the cursor is then no
// longer busy.
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
	if h := t.o.Hooks.OnApply; h != nil {
		h(Applied{Applier: l.f.name, Position: last, Entries: len(b.Entries), Took: time.Since(began)})
	}
	return true, nil
}

// next takes the entries after the position from the buffer, or reads them.
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
	l.verify, l.suspect = false, false // if they are set again during this read, they request another read
	t.mu.Unlock()

	page, err := t.read(ctx, l, b.From, limit, verify)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		l.verify, l.suspect = l.verify || verify, l.suspect || suspect
		return Batch{}, true, err
	}
	if l.verify && !verify && b.From.Seq > 0 {
		return b, true, nil // it may be of another history than the applied entries
	}
	b.Entries = page.Entries
	t.learn(l.s, page.Head.Seq, time.Now())
	if len(b.Entries) == 0 {
		// The known head may be older than the store's loss of entries. It counts only if it
		// changed since the read began.
		if l.s.head == head {
			l.s.lower(page.Head.Seq)
		}
		return b, true, nil
	}
	l.taken = b.Last().Seq
	t.skip(l, l.taken)
	return b, true, nil
}

// read reads the entries after a position, in order. If verify is set, it also reads the entry at
// the position, which must be the applied one.
func (t *Tailer) read(ctx context.Context, l *cursor, from Position, limit int, verify bool) (*core.LogPage, error) {
	overlap := 0
	if verify {
		overlap = 1
	}
	page, err := t.readLog(ctx, l.s.id, from.Seq-core.Seq(overlap), limit+overlap)
	if trimmed, ok := errors.AsType[*core.TrimmedError](err); ok && verify && trimmed.Oldest <= from.Seq+1 {
		// Nothing is missing; there is only no entry left to compare with.
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

// inOrder checks that the entries follow the position and each other (L1, T1, T2).
func inOrder(b Batch) error {
	at := b.From
	for i := range b.Entries {
		got := Position{Shard: at.Shard, Seq: b.Entries[i].Seq, Token: b.Entries[i].Token}
		if got.Seq != at.Seq+1 || got.Token < at.Token {
			return &OrderError{After: at, Got: got}
		}
		at = got
	}
	return nil
}

// readLog reads a page, after waiting for its turn.
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
