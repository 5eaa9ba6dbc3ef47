package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// These constants limit the records and, approximately, the bytes in one page of Range. Such a page
// keeps the server busy for a few milliseconds.
const (
	pageRecords = 1000
	pageBytes   = 4 << 20
)

var _ kv.Store = (*store)(nil)

// store implements kv.Store for a namespace in Redis.
type store struct {
	names   names
	opts    *Options
	scripts *scripts
	clients *clients
	ping    string // the key that pings read (E4)
	// If replaceable is true, replicas take over automatically, as with Sentinel and in a cluster,
	// and this process does not recognize a restarted server.
	replaceable bool

	attaching chan struct{} // one token; its holder may attach
	history   atomic.Pointer[history]
	seen      atomic.Int64 // highest revision returned so far
	rollback  string       // the finding of the first attach, for open
	lag       atomic.Int64 // min-replicas-max-lag, in nanoseconds; 0 if unknown
	patience  atomic.Int64 // of watches, in nanoseconds; 0: no session joined

	life    context.Context // ends with Close
	end     context.CancelFunc
	mu      sync.Mutex // guards closed, and the start of goroutines
	closed  bool
	running sync.WaitGroup
}

func newStore(c *goredis.UniversalOptions, namespace string, o *Options) (*store, error) {
	if c == nil {
		return nil, opening(namespace, fmt.Errorf("%w: Open needs options that say where it is", driver.ErrInvalid))
	}
	n, err := newNames(namespace)
	if err == nil {
		err = checkAddrs(c)
	}
	if err == nil && !o.Insecure {
		err = checkTransport(c)
	}
	if err != nil {
		return nil, err
	}
	s := &store{
		names: n, opts: o, ping: n.keys.Item(driver.PingShard, "0"), replaceable: replaceable(c),
		attaching: make(chan struct{}, 1),
	}
	if s.scripts, err = readScripts(); err != nil {
		return nil, fmt.Errorf("tenure: the scripts of Redis: %w", err)
	}
	s.clients = newClients(c, o.Insecure)
	s.life, s.end = context.WithCancel(context.Background())
	s.history.Store(new(history))
	return s, nil
}

// Close ends blocked calls and closes the connections.
func (s *store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.clients.dialer.hangUp()
	s.running.Wait()
	return s.clients.close()
}

// ask runs a script, and checks the beginning of its answer. A server runs nothing if its history
// differs from the store's history, if it is a replica, or if it was a replica until now and has no
// history. In these cases, the store attaches to the server again and, if the namespace continues
// there, sends the script again. If wait is set, ask also waits until replicas have the writes (see
// shown).
func (s *store) ask(
	ctx context.Context, beat bool, script *goredis.Script, keys []string, args []any, wait bool, words ...string,
) (*answer, string, error) {
	for again := false; ; again = true {
		var a *answer
		var word string
		h := s.history.Load()
		args[0] = h.replication
		reply, err := s.run(ctx, beat, script, keys, args, wait)
		if err == nil {
			a, word, err = newAnswer(reply.value, words...)
		}
		switch {
		case err == nil:
			a.history, a.unproven = h, reply.unproven
			return a, word, nil
		case again || !replaced(err):
			return nil, "", s.failed(ctx, err)
		}
		if err := s.attach(ctx); err != nil {
			if !driver.NotApplied(err) {
				err = fmt.Errorf("tenure: %w: %w", driver.ErrRetry, err)
			}
			return nil, "", err
		}
	}
}

// The store calls shown before it returns any part of an answer, so that no promotion can undo what
// the caller sees. After the call, Options.Replicas replicas have everything up to a revision. If
// the script wrote something, WAIT has counted these replicas. After a read, WAIT's count proves
// nothing, so a barrier is needed unless the replicas are known to have everything.
func (s *store) shown(ctx context.Context, beat bool, a *answer, wrote bool, rev kv.Rev) error {
	switch {
	case s.opts.Replicas == 0:
	case wrote:
		if a.unproven != nil {
			return a.unproven
		}
	case int64(rev) > a.history.replicated.Load():
		var err error
		if rev, err = s.barrier(ctx, beat, a.history); err != nil {
			return fmt.Errorf("tenure: a promotion might take back what was read: %w", err)
		}
	}
	raise(&a.history.replicated, rev)
	raise(&s.seen, rev)
	return nil
}

// barrier makes a write without effect, waits for the replicas, and returns the revision up to
// which they have everything. The server's history must still be that of the read.
func (s *store) barrier(ctx context.Context, beat bool, h *history) (kv.Rev, error) {
	keys := []string{s.names.key("records"), s.names.key("free")}
	reply, err := s.run(ctx, beat, s.scripts.barrier, keys, []any{h.replication}, true)
	if err != nil {
		return 0, s.failed(ctx, err)
	}
	a, _, err := newAnswer(reply.value, answerRead)
	if err != nil {
		return 0, s.failed(ctx, err)
	}
	rev := a.rev()
	return rev, errors.Join(a.end(), reply.unproven)
}

func raise(at *atomic.Int64, to kv.Rev) {
	for {
		old := at.Load()
		if int64(to) <= old || at.CompareAndSwap(old, int64(to)) {
			return
		}
	}
}

// outcome is a script's answer. If the replicas may lack the script's writes, unproven contains the
// reason.
type outcome struct {
	value    any
	unproven error
}

// The script is run once, on a connection for either heartbeats or other calls. A server without
// the script runs nothing, and then receives the script's text. If wait and Options.Replicas are
// set, run waits for the replicas on the same connection. The script's first argument is the
// history.
func (s *store) run(
	ctx context.Context, beat bool, script *goredis.Script, keys []string, args []any, wait bool,
) (*outcome, error) {
	client, give, err := s.clients.take(ctx, beat)
	if err != nil {
		return nil, err
	}
	return during(ctx, s, func(ctx context.Context) (*outcome, error) {
		defer give()
		return redirected(s.clients.dialer, func() (*outcome, error) {
			if wait && s.opts.Replicas > 0 {
				return s.replicated(ctx, client, script, keys, args)
			}
			value, err := script.EvalSha(ctx, client, keys, args...).Result()
			if unknownScript(err) {
				value, err = script.Eval(ctx, client, keys, args...).Result()
			}
			return &outcome{value: value}, err
		})
	})
}

// replicated runs a script and waits until Options.Replicas replicas have its writes. If fewer
// replicas have the writes, they may be lost with the server, so their outcome is unknown.
func (s *store) replicated(
	ctx context.Context, client *goredis.Client, script *goredis.Script, keys []string, args []any,
) (*outcome, error) {
	send := func(eval func(context.Context, goredis.Scripter, []string, ...any) *goredis.Cmd) (*outcome, error) {
		pipe := client.Pipeline()
		ran := eval(ctx, pipe, keys, args...)
		waited := pipe.Do(ctx, "WAIT", s.opts.Replicas, s.opts.ReplicaTimeout.Milliseconds())
		_, failed := pipe.Exec(ctx)
		if err := ran.Err(); err != nil {
			return nil, err
		}
		r := &outcome{value: ran.Val()}
		if failed != nil {
			r.unproven = fmt.Errorf("waiting for replicas: %v", failed) // as text, because the write may be applied
		} else if n, err := waited.Int(); err != nil || n < s.opts.Replicas {
			r.unproven = fmt.Errorf("%d of %d replicas have it after %v: look at their lag, or lower Options.Replicas",
				n, s.opts.Replicas, s.opts.ReplicaTimeout)
		}
		return r, nil
	}
	r, err := send(script.EvalSha)
	if unknownScript(err) {
		r, err = send(script.Eval)
	}
	return r, err
}

// The wait for a client's call ends when ctx ends, although the client itself observes only a
// context's deadline. Close waits for the call.
func during[T any](ctx context.Context, s *store, call func(context.Context) (T, error)) (T, error) {
	var none T
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return none, errClosed()
	}
	type result struct {
		val T
		err error
	}
	done := make(chan result, 1)
	s.running.Go(func() {
		val, err := call(ctx)
		done <- result{val, err}
	})
	s.mu.Unlock()
	select {
	case r := <-done:
		return r.val, r.err
	case <-ctx.Done():
		return none, driver.Ended(ctx)
	case <-s.life.Done():
		return none, errClosed()
	}
}

func errClosed() error { return errors.New("tenure: the backend was closed meanwhile") }

// Get reads keys in one atomic step. A ping's key is read on a heartbeat connection (E4).
func (s *store) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	args := make([]any, 0, 1+len(keys))
	args = append(args, nil)
	for _, key := range keys {
		args = append(args, s.names.record(key))
	}
	beat := len(keys) == 1 && keys[0] == s.ping
	a, _, err := s.ask(ctx, beat, s.scripts.get, s.names.fixed()[:1], args, false, answerRead)
	if err != nil {
		return nil, err
	}
	page := &kv.Page{Rev: a.rev(), Pairs: make([]kv.Pair, 0, len(keys))}
	for _, key := range keys {
		page.Pairs = append(page.Pairs, a.pair(key))
	}
	if err := a.end(); err != nil {
		return nil, err
	}
	return page, s.shown(ctx, beat, a, false, latest(page.Rev, page.Pairs))
}

// latest returns the records' highest revision. If a record is missing, the result is the
// namespace's revision, because the record may have been removed at any revision up to then.
func latest(namespace kv.Rev, pairs []kv.Pair) kv.Rev {
	rev := kv.Rev(0)
	for _, p := range pairs {
		if p.Rev == 0 {
			return namespace
		}
		rev = max(rev, p.Rev)
	}
	return rev
}

// Range reads records in pages, and returns the revision of the first page. Later pages may include
// later changes.
func (s *store) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	page := &kv.Page{}
	prefix := s.names.record(q.Prefix)
	from, end := "["+max(prefix, s.names.record(q.From)), "("+prefix+"\xff"
	var h *history
	for {
		limit := pageRecords
		if q.Limit > 0 {
			limit = min(limit, q.Limit-len(page.Pairs))
		}
		a, more, last, err := s.page(ctx, page, from, end, limit, &q)
		if err != nil {
			return nil, err
		}
		if h != nil && h != a.history { // the earlier pages are from another server
			return nil, s.failed(ctx, errHistory)
		}
		h = a.history
		if more && (q.Limit <= 0 || len(page.Pairs) < q.Limit) {
			from = "(" + last
			continue
		}
		rev := a.at
		if strings.HasPrefix(q.Prefix, s.names.keys.Logs()) { // its head shows what is missing
			rev = latest(rev, page.Pairs)
		}
		return page, s.shown(ctx, false, a, false, rev)
	}
}

// page reads the next records of a range.
func (s *store) page(
	ctx context.Context, page *kv.Page, from, end string, limit int, q *kv.Range,
) (a *answer, more bool, last string, err error) {
	bare := "0"
	if q.KeysOnly {
		bare = "1"
	}
	a, _, err = s.ask(ctx, false, s.scripts.scan, s.names.fixed()[:2], []any{nil, from, end, limit, pageBytes, bare, q.Largest}, false,
		answerRead)
	if err != nil {
		return nil, false, "", err
	}
	a.at = a.rev()
	if page.Rev == 0 {
		page.Rev = a.at
	}
	more = a.number() == 1
	for len(a.items) > 0 && !a.wrong {
		last = a.text()
		page.Pairs = append(page.Pairs, a.pair(s.names.root+last))
	}
	if err := a.end(); err != nil || more && last == "" {
		return nil, false, "", errors.Join(err, errShape)
	}
	return a, more, last, nil
}
