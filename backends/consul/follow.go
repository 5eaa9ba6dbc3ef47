package consul

import (
	"context"
	"hash/maphash"
	"strings"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/internal/changelog"
)

// Follow watches the common part of all prefixes with successive blocking queries, on one
// connection. The queries use consistent mode, because a deposed leader may return old records.
func (s *store) Follow(ctx context.Context, prefixes []string, fn func(*kv.Page) error) error {
	common := commonPrefix(prefixes)
	seed := maphash.MakeSeed()
	var seen uint64 // hash of the page that fn was called with
	var index uint64
	first, idle := true, 0
	for {
		asked, start := index, time.Now()
		page, err := s.wait(ctx, common, asked)
		if err != nil {
			return err
		}
		ans := answer{asked: asked, index: uint64(page.Rev), waited: asked > 0 && time.Since(start) >= waitTime}
		keep(page, prefixes)
		if now := fingerprint(seed, page); first || now != seen {
			if err := fn(page); err != nil {
				return err
			}
			ans.changed, first, seen = true, false, now
		}
		idle++
		if ans.changed || ans.waited {
			idle = 0
		}
		var pause time.Duration
		if index, pause = turn(ans, idle); pause == 0 {
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		case <-s.life.Done():
			return errClosed
		}
	}
}

// longest is the length of the longest record that Follow reads, which is a change log.
const longest = changelog.MaxPiggybackBytes

// wait makes one blocking query, which ends when Consul's index exceeds the given index, or after
// about waitTime. The page's revision is the answer's index.
func (s *store) wait(ctx context.Context, prefix string, index uint64) (*kv.Page, error) {
	bound, cancel := context.WithTimeout(ctx, noticed)
	defer cancel()
	c, err := s.begin(bound, waits)
	if err != nil {
		return nil, readError(err)
	}
	defer c.done()
	q := c.query()
	q.WaitIndex, q.WaitTime = index, waitTime
	page, meta, err := c.list(prefix, longest, q)
	if err == nil {
		err = possible(meta.LastIndex)
	}
	if err != nil {
		return nil, readError(err)
	}
	// Otherwise, a later read of a prefix that changed earlier could appear to be older (rule I1).
	s.learn(meta.LastIndex)
	page.Rev = kv.Rev(meta.LastIndex)
	return page, nil
}

func keep(page *kv.Page, prefixes []string) {
	if len(prefixes) == 1 {
		return
	}
	pairs := page.Pairs[:0]
	for _, p := range page.Pairs {
		for _, prefix := range prefixes {
			if strings.HasPrefix(p.Key, prefix) {
				pairs = append(pairs, p)
				break
			}
		}
	}
	page.Pairs = pairs
}

// fingerprint returns a hash of the keys and indexes of a page's records.
func fingerprint(seed maphash.Seed, page *kv.Page) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, p := range page.Pairs {
		h.WriteString(p.Key)
		maphash.WriteComparable(&h, p.Rev)
	}
	return h.Sum64()
}

// commonPrefix returns the longest folder that all prefixes share, or a single prefix unchanged.
func commonPrefix(prefixes []string) string {
	common := prefixes[0]
	for _, p := range prefixes[1:] {
		n := 0
		for n < min(len(common), len(p)) && common[n] == p[n] {
			n++
		}
		common = common[:n]
	}
	if len(prefixes) > 1 {
		common = common[:strings.LastIndexByte(common, '/')+1]
	}
	return common
}
