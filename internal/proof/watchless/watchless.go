// Package watchless hides a kv.Store's watch, for tests of package changelog.
package watchless

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
)

// New returns a store without an incremental watch, like Consul and ZooKeeper. The store applies a
// batch with a piggybacked transaction as one transaction, completely or not at all. The Follow
// method returns whole prefixes. If s is behind a kvfault.Link, each request passes through the
// Link.
func New(s kv.Store) changelog.Store { return &store{s} }

type store struct{ below kv.Store }

func (s *store) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	return s.below.Get(ctx, keys...)
}

func (s *store) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	return s.below.Range(ctx, q)
}

func (s *store) Close() error { return s.below.Close() }

// maxSplits limits how many times the store resends a batch without the refused transactions.
const maxSplits = 4

func (s *store) Apply(ctx context.Context, b *changelog.Batch) (*changelog.Outcome, error) {
	if b.Piggyback == nil {
		out, err := s.below.Apply(ctx, &b.Batch)
		if err != nil {
			return nil, err
		}
		return &changelog.Outcome{Outcome: *out}, nil
	}
	out := &changelog.Outcome{Outcome: kv.Outcome{Results: make([]kv.Result, len(b.Txns))}}
	send := make([]int, len(b.Txns))
	for i := range send {
		send[i] = i
	}
	for range maxSplits {
		if len(send) == 0 {
			return out, nil
		}
		all := together(b, send)
		got, err := s.below.Apply(ctx, all)
		if err != nil {
			return nil, err
		}
		out.Rev = got.Rev
		if got.Refused {
			return &changelog.Outcome{Outcome: kv.Outcome{Rev: got.Rev, Refused: true, Guard: got.Guard}}, nil
		}
		r := got.Results[0]
		if r.Err != nil {
			return nil, fmt.Errorf("watchless: the outcome is unknown: %w", r.Err)
		}
		if r.OK {
			applied(out, b, send, r)
			return out, nil
		}
		found := make(map[string]kv.Pair, len(r.Reads))
		for _, pair := range r.Reads {
			found[pair.Key] = pair
		}
		var left []int
		for _, i := range send {
			if holds(b.Txns[i].If, found) {
				left = append(left, i)
				continue
			}
			for _, key := range b.Txns[i].Else {
				out.Results[i].Reads = append(out.Results[i].Reads, found[key])
			}
		}
		if len(left) > 0 && !holds(b.Piggyback.If, found) {
			return &changelog.Outcome{PiggybackRefused: true}, nil
		}
		send = left
	}
	return nil, fmt.Errorf("watchless: %w: what refused it passed again and again", driver.ErrRetry)
}

// applied stores the result of one transaction that contained some of the batch's transactions.
func applied(out *changelog.Outcome, b *changelog.Batch, send []int, r kv.Result) {
	for _, i := range send {
		n := len(b.Txns[i].Then)
		out.Results[i] = kv.Result{OK: true, Rev: r.Rev, Reads: r.Reads[:n:n]}
		r.Reads = r.Reads[n:]
	}
	out.Piggyback = kv.Result{OK: true, Rev: r.Rev}
}

// together returns a batch with a single transaction, which contains the piggybacked transaction
// and some of the other transactions.
func together(b *changelog.Batch, send []int) *kv.Batch {
	t := kv.Txn{}
	add := func(part *kv.Txn) {
		t.If = append(t.If, part.If...)
		t.Ops = append(t.Ops, part.Ops...)
		t.Then = append(t.Then, part.Then...)
		t.Else = append(t.Else, part.Else...)
		for _, c := range part.If {
			t.Else = append(t.Else, c.Key)
		}
	}
	for _, i := range send {
		add(&b.Txns[i])
	}
	add(b.Piggyback)
	return &kv.Batch{Guard: b.Guard, Txns: []kv.Txn{t}}
}

func holds(conds []kv.Compare, found map[string]kv.Pair) bool {
	for _, c := range conds {
		rev := found[c.Key].Rev
		if c.Rev == kv.Exists && rev == 0 || c.Rev != kv.Exists && rev != c.Rev {
			return false
		}
	}
	return true
}

func (s *store) Follow(ctx context.Context, prefixes []string, fn func(*kv.Page) error) error {
	for {
		page, err := s.all(ctx, prefixes)
		if err != nil {
			return err
		}
		if err := fn(page); err != nil {
			return err
		}
		err = s.below.Watch(ctx, prefixes, page.Rev, func(_ kv.Rev, changes []kv.Change) error {
			if len(changes) == 0 {
				return nil
			}
			page, err := s.all(ctx, prefixes)
			if err != nil {
				return err
			}
			return fn(page)
		})
		if !errors.Is(err, kv.ErrCompacted) {
			return err
		}
	}
}

// all reads all keys with the given prefixes.
func (s *store) all(ctx context.Context, prefixes []string) (*kv.Page, error) {
	all := &kv.Page{}
	for i, prefix := range prefixes {
		page, err := s.below.Range(ctx, kv.Range{Prefix: prefix})
		if err != nil {
			return nil, err
		}
		if i == 0 || page.Rev < all.Rev {
			all.Rev = page.Rev
		}
		all.Pairs = append(all.Pairs, page.Pairs...)
	}
	return all, nil
}
