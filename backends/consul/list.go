package consul

import (
	"context"
	"errors"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/backends/kv"
)

// Range reads a prefix. Consul answers with a prefix as a whole, so that a part of
// it costs the names of all: they are read first, and then the values asked for.
func (s *store) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	if q.From == "" && q.Limit == 0 && !q.KeysOnly {
		return s.list(ctx, q.Prefix)
	}
	names, page, err := s.names(ctx, q)
	if err != nil {
		return nil, err
	}
	limit := q.Limit
	if limit == 0 {
		limit = len(names)
	}
	if q.KeysOnly {
		for _, name := range names[:min(limit, len(names))] {
			page.Pairs = append(page.Pairs, kv.Pair{Key: name, Rev: page.Rev})
		}
		return page, nil
	}
	for len(names) > 0 && len(page.Pairs) < limit {
		n := min(len(names), limit-len(page.Pairs))
		part, err := s.Get(ctx, names[:n]...)
		if err != nil {
			return nil, err
		}
		for _, p := range part.Pairs {
			if p.Rev != 0 { // else it was removed since
				page.Pairs = append(page.Pairs, p)
			}
		}
		names = names[n:]
	}
	return page, nil
}

// list reads all records of a prefix, at one index.
func (s *store) list(ctx context.Context, prefix string) (*kv.Page, error) {
	known, witness := s.known.Load(), s.witness.now()
	c, err := s.begin(ctx, requests)
	if err != nil {
		return nil, readError(err)
	}
	defer c.done()
	found, meta, err := c.client.KV().List(prefix, c.query())
	if err = c.heard(err); err != nil {
		return nil, readError(err)
	}
	page, err := pageOf(found)
	if err != nil {
		return nil, readError(err)
	}
	for _, p := range page.Pairs {
		s.witness.check(witness, p)
	}
	return page, s.date(page, known, meta)
}

// names reads the keys of a prefix from one on.
func (s *store) names(ctx context.Context, q kv.Range) ([]string, *kv.Page, error) {
	known := s.known.Load()
	c, err := s.begin(ctx, requests)
	if err != nil {
		return nil, nil, readError(err)
	}
	defer c.done()
	all, meta, err := c.client.KV().Keys(q.Prefix, "", c.query())
	if err = c.heard(err); err != nil {
		return nil, nil, readError(err)
	}
	names := all[:0]
	for _, name := range all {
		if name >= q.From && strings.HasPrefix(name, q.Prefix) {
			names = append(names, name)
		}
	}
	page := new(kv.Page)
	return names, page, s.date(page, known, meta)
}

// date gives a page the index up to which everything is in it. The index of a
// prefix is that of its latest change, and goes back when Consul forgets a
// deletion; the index known before the read is in it as well.
func (s *store) date(page *kv.Page, known uint64, meta *api.QueryMeta) error {
	if err := possible(meta.LastIndex); err != nil {
		return readError(err)
	}
	index := max(known, meta.LastIndex)
	if index == 0 {
		return readError(errors.New("it answered without an index"))
	}
	s.learn(index)
	page.Rev = kv.Rev(index)
	return nil
}

func pageOf(found api.KVPairs) (*kv.Page, error) {
	page := &kv.Page{Pairs: make([]kv.Pair, len(found))}
	for i, p := range found {
		if p == nil {
			return nil, errors.New("it answered with a record that is null")
		}
		if err := possible(p.ModifyIndex); err != nil {
			return nil, err
		}
		page.Pairs[i] = (&entry{Key: p.Key, Value: p.Value, ModifyIndex: p.ModifyIndex}).pair()
	}
	return page, nil
}
