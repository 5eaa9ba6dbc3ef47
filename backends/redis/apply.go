package redis

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// window is the minimum number of transactions that a feed keeps. A reader that is further behind
// must read all records again.
const window = 1 << 15

// maxBytes limits the size of a batch's request, and thereby roughly the time that the server
// spends on it.
const maxBytes = 4 << 20

// Apply runs the batch as one script.
func (s *store) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	r := s.request(b)
	if r.bytes > maxBytes {
		return nil, fmt.Errorf("tenure: %w: a batch of %d bytes: Redis takes %d here; split it", driver.ErrTooLarge, r.bytes,
			maxBytes)
	}
	a, word, err := s.ask(ctx, b.Heartbeat, s.scripts.apply, r.keys, r.args, true, answerApplied, answerRefused)
	if err != nil {
		return nil, err
	}
	out := &kv.Outcome{Rev: a.rev()}
	if word == answerRefused {
		out.Refused = true
		for _, c := range b.Guard {
			out.Guard = append(out.Guard, a.pair(c.Key))
		}
		return s.applied(ctx, b, a, out, false)
	}
	wrote := false
	out.Results = make([]kv.Result, len(b.Txns))
	for i := range b.Txns {
		t, res := &b.Txns[i], &out.Results[i]
		reads := t.Else
		if res.OK = a.number() == 1; res.OK {
			wrote = true
			res.Rev, reads = out.Rev, t.Then
		}
		if t.Prev {
			if was := a.rev(); res.OK {
				res.Prev = was
			}
		}
		for _, key := range reads {
			res.Reads = append(res.Reads, a.pair(key))
		}
	}
	return s.applied(ctx, b, a, out, wrote)
}

// applied finishes a call of Apply. If nothing was written, the error satisfies driver.NotApplied.
func (s *store) applied(ctx context.Context, b *kv.Batch, a *answer, out *kv.Outcome, wrote bool) (*kv.Outcome, error) {
	if err := a.end(); err != nil {
		return nil, err
	}
	err := s.shown(ctx, b.Heartbeat, a, wrote, out.Rev)
	switch {
	case err == nil:
		return out, nil
	case !wrote && !driver.NotApplied(err):
		err = fmt.Errorf("tenure: %w: nothing was written: %w", driver.ErrRetry, err)
	}
	return nil, err
}

// request contains the script's keys and arguments for a batch.
type request struct {
	keys  []string
	args  []any
	bytes int
}

// request numbers the records that the batch compares and reads, and lists them first.
func (s *store) request(b *kv.Batch) *request {
	r := &request{keys: s.names.fixed()}
	number := make(map[string]int)
	var read []any
	place := func(key string) string {
		n, known := number[key]
		if !known {
			n = len(number) + 1
			number[key] = n
			read = append(read, s.names.record(key))
			r.bytes += len(key)
		}
		return strconv.Itoa(n)
	}
	var body []any
	conditions := func(cs []kv.Compare) {
		body = append(body, len(cs))
		for _, c := range cs {
			body = append(body, place(c.Key), int64(c.Rev))
		}
	}
	reads := func(keys []string) {
		body = append(body, len(keys))
		for _, key := range keys {
			body = append(body, place(key))
		}
	}
	conditions(b.Guard)
	body = append(body, len(b.Txns))
	for i := range b.Txns {
		t := &b.Txns[i]
		conditions(t.If)
		body = append(body, len(t.Ops))
		for _, op := range t.Ops {
			body = append(body, s.names.record(op.Key), kind(op.Delete), r.feed(s.names, op.Key), op.Value)
			r.bytes += len(op.Key) + len(op.Value)
		}
		reads(t.Then)
		reads(t.Else)
		if t.Prev {
			body = append(body, place(t.Ops[0].Key))
		} else {
			body = append(body, 0)
		}
	}
	r.args = append(append(append(make([]any, 0, 3+len(read)+len(body)), nil, window, len(read)),
		read...), body...)
	return r
}

// feed returns the number of a record's feed or, for a heartbeat, of the key of the session's
// stream.
func (r *request) feed(n names, key string) int {
	feed, session := n.feed(key)
	if feed == beatsFeed {
		r.keys = append(r.keys, n.own(session))
		return len(r.keys)
	}
	return feed
}

func kind(deleted bool) string {
	if deleted {
		return "d"
	}
	return "k"
}
