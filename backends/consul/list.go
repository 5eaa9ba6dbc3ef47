package consul

import (
	"context"
	"errors"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/backends/kv"
)

// If kv.Range.Largest is set, values of up to 512 KiB may be too long to keep. The Backend then
// reads a few values at a time, and more while no value turns out to be too long.
const cautious, trusting = 2, 16

// Range reads a prefix. Because Consul always returns a whole prefix, a partial read first gets all
// names, and then the values of that part.
func (s *store) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	if q.From == "" && q.Limit == 0 && !q.KeysOnly {
		return s.list(ctx, q.Prefix, q.Largest)
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
	for few := cautious; len(names) > 0 && len(page.Pairs) < limit; few = min(2*few, trusting) {
		n := min(len(names), limit-len(page.Pairs))
		if q.Largest > 0 {
			n = min(n, few)
		}
		part, err := s.Get(ctx, names[:n]...)
		if err != nil {
			return nil, err
		}
		for _, p := range part.Pairs {
			if p.Rev != 0 { // otherwise it has been removed since
				if p.Cut(q.Largest); p.Long > 0 {
					few = cautious / 2
				}
				page.Pairs = append(page.Pairs, p)
			}
		}
		names = names[n:]
	}
	return page, nil
}

// list reads all records below a prefix, at one index.
func (s *store) list(ctx context.Context, prefix string, largest int) (*kv.Page, error) {
	known, witness := s.known.Load(), s.witness.now()
	c, err := s.begin(ctx, requests)
	if err != nil {
		return nil, readError(err)
	}
	defer c.done()
	page, meta, err := c.list(prefix, largest, c.query())
	if err != nil {
		return nil, readError(err)
	}
	for _, p := range page.Pairs {
		s.witness.check(witness, p)
	}
	return page, s.date(page, known, meta)
}

// names reads the keys below a prefix, starting at q.From.
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

// date sets the index up to which the page is complete. A prefix has the index of its latest
// change, which decreases when Consul forgets a deletion. The page is also complete up to the index
// known before the read.
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

// list queries the records of a prefix, and drops values longer than largest.
func (c *call) list(prefix string, largest int, q *api.QueryOptions) (*kv.Page, *api.QueryMeta, error) {
	l := &listing{largest: largest}
	found, meta, err := c.client.KV().List(prefix, q.WithContext(context.WithValue(q.Context(), listingKey{}, l)))
	if err = c.heard(err); err != nil {
		return nil, nil, err
	}
	for _, p := range found {
		if err := l.add(p); err != nil {
			return nil, nil, err
		}
	}
	return &l.page, meta, nil
}
