package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// writers contains this process's change logs of one kind. Each write to a change log is
// conditional on the previous write, so only one transaction at a time can write to it. A caller
// blocks while all change logs are in use.
type writers struct {
	kind     kind
	instance string
	slots    chan struct{} // holds one token for each change log in use

	mu    sync.Mutex
	all   []*writer
	named int // number of names assigned so far
}

// writer is one change log of this process. Only the call that has taken a change log may use it.
type writer struct {
	name  string
	taken bool // guarded by writers.mu
	// These fields describe the log's record, if it is known. After an unknown outcome or a
	// refusal, the process reads the record before it uses the log again. The next request changes
	// the record, so an older request that is still in progress can no longer be applied.
	known bool
	rev   kv.Rev // 0: no record
	log   changeLog
}

func (w *writers) init(k kind, instance string, n int) {
	w.kind, w.instance = k, instance
	w.slots = make(chan struct{}, n)
	w.all = make([]*writer, n)
	for i := range w.all {
		w.all[i] = &writer{}
		w.rename(w.all[i])
	}
}

// rename gives a change log a new name. If the log's record was removed or damaged, a reader would
// mistake a restart under the old name for a continuation.
func (w *writers) rename(l *writer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.named++
	l.name = w.kind.prefix() + w.instance + "-" + strconv.Itoa(w.named)
	l.known, l.rev, l.log = true, 0, changeLog{}
}

// take waits for a free change log. The oldest ones are preferred, so a process never has more
// change logs than concurrent transactions.
func (w *writers) take(ctx context.Context) (*writer, error) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, notSent(fmt.Errorf("tenure: waiting for other writes: %w", ctx.Err()))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.all[slices.IndexFunc(w.all, func(l *writer) bool { return !l.taken })]
	l.taken = true
	return l, nil
}

func (w *writers) give(l *writer) {
	w.mu.Lock()
	l.taken = false
	w.mu.Unlock()
	<-w.slots
}

// The result reports whether this process may still write to the change log.
func (w *writers) mine(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.all, func(l *writer) bool { return l.name == name })
}

// maxRefusals limits how many times Apply sends a batch whose piggybacked transaction the store
// refuses. A late request, or a process that removes change logs, may cause a refusal.
const maxRefusals = 8

// Apply adds entries for the batch's changes to change logs. Heartbeats have no entries, so they
// never wait for a change log (rule E4).
func (s *store) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	names := changed(s.keys, b)
	var taken [kinds]*writer
	for k := range kinds {
		if len(names[k]) == 0 {
			continue
		}
		w, err := s.feeds[k].writers.take(ctx)
		if err != nil {
			return nil, err
		}
		defer s.feeds[k].writers.give(w)
		taken[k] = w
	}
	send := Batch{Batch: *b}
	if taken == [kinds]*writer{} {
		out, err := s.below.Apply(ctx, &send)
		if err != nil {
			return nil, err
		}
		return &out.Outcome, nil
	}
	send.Txns, send.Head = withoutHeads(s.keys, b.Txns)
	for refused := range maxRefusals {
		// The removal of a change log may have caused the last refusal.
		next, err := s.piggyback(ctx, b, names, taken, refused == 0)
		if err != nil {
			return nil, err
		}
		send.Piggyback = next.txn
		out, err := s.below.Apply(ctx, &send)
		for k, w := range taken {
			if w != nil {
				w.settle(next.logs[k], out, err)
			}
		}
		if err != nil {
			return nil, err
		}
		if !out.PiggybackRefused {
			return &out.Outcome, unlogged(out)
		}
	}
	return nil, fmt.Errorf("tenure: %w: its change logs moved too often meanwhile", driver.ErrRetry)
}

// next contains the next write to the change logs that a batch uses.
type next struct {
	txn  *kv.Txn
	logs [kinds]changeLog // their contents after the write
}

// piggyback returns the next write to the change logs taken for a batch. If clean is true, this
// write also removes a change log that has been idle for a while.
func (s *store) piggyback(ctx context.Context, b *kv.Batch, names [kinds][]string, taken [kinds]*writer,
	clean bool) (*next, error) {
	t := &kv.Txn{}
	n := &next{txn: t}
	for k, w := range taken {
		if w == nil {
			continue
		}
		k := kind(k)
		if err := s.recall(ctx, k, w); err != nil {
			return nil, notSent(err)
		}
		entries := names[k]
		if name, at, ok := s.stale(k); ok && clean && len(t.Ops)+2 <= MaxPiggybackOps {
			t.If = append(t.If, kv.Compare{Key: s.key(name), Rev: at.rev})
			t.Ops = append(t.Ops, kv.Op{Key: s.key(name), Delete: true})
			entries = append([]string{tombstone(name, at.seq)}, entries...)
		}
		l := w.log.with(k, entries, time.Now())
		if len(names[k]) == 1 {
			l = l.withInline(names[k][0], inlineValue(s.keys, k, b))
		}
		t.If = append(t.If, kv.Compare{Key: s.key(w.name), Rev: w.rev})
		t.Ops = append(t.Ops, kv.Op{Key: s.key(w.name), Value: l.encode()})
		n.logs[k] = l
	}
	return n, nil
}

// settle updates a change log after a batch that wrote to it.
func (w *writer) settle(next changeLog, out *Outcome, err error) {
	switch {
	case err != nil:
		w.known = driver.NotApplied(err)
	case out.Refused:
	case out.Piggyback.OK && out.Piggyback.Rev > 0:
		w.rev, w.log = out.Piggyback.Rev, next.written(out.Piggyback.Rev)
	default:
		w.known = !out.PiggybackRefused && !out.Piggyback.OK && unlogged(out) == nil
		for _, r := range out.Results {
			w.known = w.known && r.Err == nil
		}
	}
}

// unlogged returns an error if the store applied a change without its entry. Such a store breaks
// its contract, and observers miss the change.
func unlogged(out *Outcome) error {
	if !out.Refused && !out.Piggyback.OK && slices.ContainsFunc(out.Results, func(r kv.Result) bool { return r.OK }) {
		return errors.New("tenure: the store applied a write without the change log that has to go with it")
	}
	return nil
}

// recall reads a change log whose record is unknown, and abandons one that was removed.
func (s *store) recall(ctx context.Context, k kind, w *writer) error {
	f := &s.feeds[k]
	if w.known {
		s.mu.Lock()
		gone := f.observer.gone(w.name, w.rev, f.complete)
		s.mu.Unlock()
		if gone {
			f.writers.rename(w)
		}
		return nil
	}
	page, err := s.below.Get(ctx, s.key(w.name))
	if err != nil {
		return err
	}
	if len(page.Pairs) != 1 {
		return fmt.Errorf("tenure: the store answered %d of 1 keys", len(page.Pairs))
	}
	l, err := decode(page.Pairs[0])
	if err != nil { // a missing record is also damaged
		f.writers.rename(w)
		return nil
	}
	w.known, w.rev, w.log = true, page.Pairs[0].Rev, l
	return nil
}

// The result is a change log that no process has written during the retention time.
func (s *store) stale(k kind) (string, position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	f := &s.feeds[k]
	logs := f.observer.logs
	if f.reader == nil {
		s.sweep(k, now)
		logs = f.sweep.logs
	}
	name, at, ok := stale(logs, now, s.retention, f.writers.mine)
	if ok && f.reader == nil {
		delete(logs, name) // otherwise nothing would show that the log is gone
	}
	return name, at, ok
}

// sweep records what a process has read from the change logs of one kind. It is used only if the
// process writes such change logs but follows none of them.
type sweep struct {
	next time.Time
	logs map[string]position
}

// sweep reads the change logs of a kind if the next sweep is due. The caller holds the lock.
func (s *store) sweep(k kind, now time.Time) {
	sw := &s.feeds[k].sweep
	if s.closed || now.Before(sw.next) {
		return
	}
	sw.next = now.Add(min(s.retention, maxAge))
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, maxAge)
		defer cancel()
		page, err := s.below.Range(ctx, kv.Range{Prefix: s.key(k.prefix())})
		if err != nil {
			return // the next sweep tries again
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		seen := make(map[string]position, len(page.Pairs))
		for _, p := range page.Pairs {
			name := strings.TrimPrefix(p.Key, s.keys.ChangeLogs())
			at := sw.logs[name]
			if at.rev != p.Rev {
				l, _ := decode(p) // the entries of a damaged log are lost for readers that are behind
				at = position{seq: l.seq, rev: p.Rev, size: len(p.Value), since: time.Now()}
			}
			seen[name] = at
		}
		sw.logs = seen
	})
}

// notSent returns the error for a write that failed before it was sent.
func notSent(err error) error {
	return fmt.Errorf("tenure: %w: nothing was sent: %w", driver.ErrRetry, err)
}
