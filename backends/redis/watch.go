package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// Watch reads either one prefix's feed or the heartbeat streams of several sessions.
func (s *store) Watch(ctx context.Context, prefixes []string, after kv.Rev, fn func(kv.Rev, []kv.Change) error) error {
	w := &watch{s: s, after: after}
	if err := w.follow(prefixes); err != nil {
		return err
	}
	for {
		rev, changes, err := w.next(ctx)
		if err != nil {
			return fmt.Errorf("tenure: watching: %w", err)
		}
		if rev == w.after && len(changes) == 0 {
			continue
		}
		w.after = rev
		if err := fn(rev, changes); err != nil {
			return err
		}
	}
}

// If no change arrives within its patience, a watch checks that the server is still there and still
// has the data that the watch has read. The patience is patientShare of the smallest TTL with which
// a member joined. This is long enough for a heartbeat to end an idle member's wait. A silently
// lost connection is abandoned within the patience plus answerSlack.
const (
	patientShare = 0.6
	minWait      = 2 * time.Second // used if there is no session
	maxWait      = 6 * time.Second
	answerSlack  = 3 * time.Second
)

// joined adapts the watches' patience to a member's TTL.
func (s *store) joined(ttl time.Duration) {
	wait := int64(min(max(time.Duration(patientShare*float64(ttl)), minWait), maxWait))
	for {
		old := s.patience.Load()
		if old != 0 && old <= wait || s.patience.CompareAndSwap(old, wait) {
			return
		}
	}
}

// noticed limits the wait for the records of a feed's changes, after which the connection is
// considered lost.
const noticed = minWait + answerSlack

// perRead is the maximum number of batches that a watch reads together.
const perRead = 100

type watch struct {
	s       *store
	after   kv.Rev
	streams []string
	feed    string // its name
	whole   bool   // the stream is a feed, so no message may be missing
	values  bool   // the records are needed
	sure    bool   // the last wait brought messages
	last    string // id of the feed's last message; empty if unknown
}

// follow chooses the streams: either one feed or some sessions' heartbeat streams.
func (w *watch) follow(prefixes []string) error {
	n := w.s.names
	for i, prefix := range []string{n.keys.State(), n.keys.Logs(), n.keys.Beats()} {
		feed := stateFeed + i
		w.feed, w.streams = feedNames[feed], []string{n.key(feedNames[feed])}
		w.whole, w.values = true, feed != beatsFeed
		if len(prefixes) == 1 && prefixes[0] == prefix {
			return nil
		}
	}
	w.streams, w.whole = nil, false
	for _, p := range prefixes {
		feed, session := n.feed(p)
		if feed != beatsFeed || session == "" {
			return fmt.Errorf("tenure: %w: no feed tells the changes of %q", driver.ErrUnsupported, p)
		}
		w.streams = append(w.streams, n.own(session))
	}
	return nil
}

// The wait for changes after w.after is limited by the watch's patience.
func (w *watch) next(ctx context.Context) (kv.Rev, []kv.Change, error) {
	patience := max(time.Duration(w.s.patience.Load()), minWait)
	told := w.after
	if !w.sure {
		var err error
		if told, err = w.check(ctx); err != nil {
			return 0, nil, err
		}
	}
	block := patience
	if w.whole && told > w.after { // there are changes, or they were trimmed
		block = time.Millisecond
	}
	args := &goredis.XReadArgs{Count: perRead, Block: block}
	args.Streams = append(args.Streams, w.streams...)
	for range w.streams {
		args.Streams = append(args.Streams, strconv.FormatInt(int64(w.after), 10)+"-18446744073709551615")
	}
	read, err := waiting(ctx, w.s, patience, func(ctx context.Context) ([]goredis.XStream, error) {
		pipe := w.s.clients.waits.Pipeline() // a lone command's time-out would be 10 s longer
		read := pipe.XRead(ctx, args)
		_, err := pipe.Exec(ctx)
		return read.Val(), err
	})
	if err != nil {
		return 0, nil, w.s.failed(ctx, err)
	}
	w.sure = len(read) > 0
	if w.whole && told > w.after && len(read) == 0 { // the last messages were trimmed
		return 0, nil, kv.ErrCompacted
	}
	return w.read(ctx, read)
}

// check verifies that the server still has all revisions that the watch has seen, and returns the
// feed's last revision. Because messages that arrive in sequence prove the same, a check is needed
// only at the beginning and after each wait without changes.
func (w *watch) check(ctx context.Context) (told kv.Rev, _ error) {
	heads, err := waiting(ctx, w.s, 0, func(ctx context.Context) ([]any, error) {
		return w.s.clients.waits.HMGet(ctx, w.s.names.key("records"), "rev", w.feed).Result()
	})
	if err != nil {
		return 0, w.s.failed(ctx, err)
	}
	rev, told, ok := revisions(heads)
	switch {
	case !ok:
		return 0, w.s.failed(ctx, errLost)
	case rev < w.after: // the store was replaced, or went back
		return 0, kv.ErrCompacted
	}
	return told, nil
}

// The call uses a connection for watches, and its answer may be delayed by up to wait.
func waiting[T any](ctx context.Context, s *store, wait time.Duration, call func(context.Context) (T, error)) (T, error) {
	return during(ctx, s, func(ctx context.Context) (T, error) {
		return redirected(s.clients.dialer, func() (T, error) {
			ctx, cancel := context.WithTimeout(ctx, wait+answerSlack)
			defer cancel()
			v, err := call(ctx)
			if errors.Is(err, goredis.Nil) {
				err = nil
			}
			return v, err
		})
	})
}

// revisions returns the last revisions of the namespace and of a feed.
func revisions(heads []any) (rev, told kv.Rev, ok bool) {
	var n [2]int64
	for i := range n {
		if i >= len(heads) {
			return 0, 0, false
		}
		text, _ := heads[i].(string)
		var err error
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return 0, 0, false
		}
	}
	return kv.Rev(n[0]), kv.Rev(n[1]), true
}

func (w *watch) read(ctx context.Context, streams []goredis.XStream) (kv.Rev, []kv.Change, error) {
	last := w.after
	var changes []kv.Change
	for _, stream := range streams {
		for _, m := range stream.Messages {
			number, _, _ := strings.Cut(m.ID, "-")
			rev, err := strconv.ParseInt(number, 10, 64)
			told, ok := m.Values["c"].(string)
			if err != nil || !ok {
				return 0, nil, errShape
			}
			before, _ := m.Values["p"].(string)
			if w.whole && !reached(before, last) || w.last != "" && before != w.last {
				return 0, nil, kv.ErrCompacted
			}
			if w.whole {
				last, w.last = kv.Rev(rev), number
			}
			for c := range strings.SplitSeq(told, " ") {
				if c == "" {
					return 0, nil, errShape
				}
				changes = append(changes, kv.Change{Key: w.s.names.root + c[1:], Rev: kv.Rev(rev), Deleted: c[0] == 'd'})
			}
		}
	}
	if !w.whole {
		// Each stream has only the last heartbeat of one session, so the changes must be sorted.
		slices.SortFunc(changes, func(a, b kv.Change) int { return cmp.Compare(a.Rev, b.Rev) })
		for _, c := range changes {
			last = max(last, c.Rev)
		}
	}
	if w.values && len(changes) > 0 {
		return last, changes, w.fetch(ctx, changes)
	}
	return last, changes, nil
}

// reached reports whether all of a feed's messages before the given one were read.
func reached(before string, last kv.Rev) bool {
	n, err := strconv.ParseInt(before, 10, 64)
	return err == nil && kv.Rev(n) <= last
}

// fetch reads the current records of the changes.
func (w *watch) fetch(ctx context.Context, changes []kv.Change) error {
	for part := range slices.Chunk(changes, pageRecords) {
		keys := make([]string, len(part))
		for i, c := range part {
			keys[i] = c.Key
		}
		page, err := w.page(ctx, keys)
		if err != nil {
			return err
		}
		for i, p := range page.Pairs {
			if part[i].Deleted = p.Rev == 0; !part[i].Deleted {
				part[i].Value, part[i].Rev = p.Value, p.Rev
			}
		}
	}
	return nil
}

func (w *watch) page(ctx context.Context, keys []string) (*kv.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, noticed)
	defer cancel()
	return w.s.Get(ctx, keys...)
}
