package kv

import (
	"context"
	"fmt"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

// span is the range [lo, hi) of the items sent in one round trip.
type span struct{ lo, hi int }

// split divides n items into spans that are limited in items and, unless size is nil, in bytes. An
// item above the byte limit gets its own span.
func split(n, items, bytes int, size func(i int) int) []span {
	spans := make([]span, 0, n/items+1)
	lo, sum := 0, 0
	for i := range n {
		s := 0
		if size != nil {
			s = size(i)
		}
		if i > lo && (i-lo == items || sum+s > bytes) {
			spans = append(spans, span{lo, i})
			lo, sum = i, 0
		}
		sum += s
	}
	if n > lo {
		spans = append(spans, span{lo, n})
	}
	return spans
}

func (b *Backend) spans(txns []Txn, size func(i int) int) []span {
	if b.fit == nil {
		return split(len(txns), b.info.Limits.BatchItems, b.info.Limits.WriteBytes, size)
	}
	var spans []span
	for lo := 0; lo < len(txns); {
		room := txns[lo:min(len(txns), lo+b.info.Limits.BatchItems)]
		hi := lo + max(1, min(b.fit(room), len(room)))
		spans = append(spans, span{lo, hi})
		lo = hi
	}
	return spans
}

// pipelined calls the function for every span, with at most width concurrent calls, and returns the
// errors in order.
func pipelined(spans []span, width int, do func(span) error) []error {
	errs := make([]error, len(spans))
	if width == 1 || len(spans) == 1 {
		for i, s := range spans {
			errs[i] = do(s)
		}
		return errs
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, width)
	for i, s := range spans {
		slots <- struct{}{}
		all.Go(func() {
			errs[i] = do(s)
			<-slots
		})
	}
	all.Wait()
	return errs
}

// write sends transactions in batches. For each transaction, the answer function is called exactly
// once, with either the result or the batch's error. These calls may be concurrent. An error from
// write means that nothing was applied (rule A4).
func (b *Backend) write(ctx context.Context, s *session, txns []Txn, size func(i int) int, answer func(i int, r *Result, err error)) error {
	if len(txns) == 0 {
		return nil
	}
	spans := b.spans(txns, size)
	errs := pipelined(spans, b.pipeline, func(sp span) error {
		out, err := b.guarded(ctx, s, &Batch{Txns: txns[sp.lo:sp.hi]})
		for i := sp.lo; i < sp.hi; i++ {
			if err != nil {
				answer(i, nil, err)
			} else if r := &out.Results[i-sp.lo]; r.Err != nil {
				answer(i, nil, fmt.Errorf("tenure: writing: %w", r.Err))
			} else {
				answer(i, r, nil)
			}
		}
		return err
	})
	for _, err := range errs {
		if !driver.NotApplied(err) {
			return nil
		}
	}
	return errs[0]
}

// guarded applies a batch on condition that the session is alive. A nil session adds no condition.
func (b *Backend) guarded(ctx context.Context, s *session, batch *Batch) (*Outcome, error) {
	if s == nil {
		out, err := b.apply(ctx, batch)
		if err == nil && out.Refused {
			return nil, retry("the namespace's identity moved")
		}
		return out, err
	}
	if err := s.alive(); err != nil {
		return nil, err
	}
	out, err := b.apply(ctx, batch, Compare{Key: b.keys.Member(s.id), Rev: Exists})
	if err == nil && out.Refused {
		if out.Guard[1].Rev == 0 {
			return nil, s.end()
		}
		return nil, retry("the namespace's identity moved")
	}
	return out, err
}

// get reads at most BatchItems keys in each round trip.
func (b *Backend) get(ctx context.Context, keys []string) (*Page, error) {
	spans := split(len(keys), b.info.Limits.BatchItems, 0, nil)
	pages := make([]*Page, len(spans))
	errs := pipelined(spans, b.pipeline, func(sp span) (err error) {
		pages[sp.lo/b.info.Limits.BatchItems], err = b.store.Get(ctx, keys[sp.lo:sp.hi]...)
		return err
	})
	all := &Page{Pairs: make([]Pair, 0, len(keys))}
	for i, page := range pages {
		if errs[i] != nil {
			return nil, b.readError(errs[i])
		}
		if want := spans[i].hi - spans[i].lo; len(page.Pairs) != want {
			return nil, fmt.Errorf("tenure: the store answered %d of %d keys", len(page.Pairs), want)
		}
		if i == 0 || page.Rev < all.Rev {
			all.Rev = page.Rev
		}
		all.Pairs = append(all.Pairs, page.Pairs...)
	}
	return all, nil
}

// inspect reads keys before a write, and checks that the namespace's identity is unchanged and that
// the session is alive. A nil session is not checked.
func (b *Backend) inspect(ctx context.Context, s *session, keys []string) ([]Pair, error) {
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	ask := []string{b.keys.Identity()}
	if s != nil {
		if err := s.alive(); err != nil {
			return nil, err
		}
		ask = append(ask, b.keys.Member(s.id))
	}
	first := len(ask)
	page, err := b.get(ctx, append(ask, keys...))
	if err != nil {
		return nil, notSent(err)
	}
	if err := b.checkIdentity(page.Pairs[0]); err != nil {
		return nil, err
	}
	if s != nil && page.Pairs[1].Rev == 0 {
		return nil, s.end()
	}
	return page.Pairs[first:], nil
}

// retry returns the error for a write that was refused for a reason that no longer applies.
func retry(why string) error {
	return fmt.Errorf("tenure: %w: %s meanwhile", driver.ErrRetry, why)
}

// notApplied makes err satisfy driver.NotApplied. The records that caused err were read before
// anything was sent, or by a refused transaction.
func notApplied(err error) error {
	if driver.NotApplied(err) {
		return err
	}
	return fmt.Errorf("tenure: %w: %w", driver.ErrRetry, err)
}
