package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// A page of a Range has at most so many records and about so many bytes, so that the
// server is busy with it for a few milliseconds.
const (
	pageRecords = 1000
	pageBytes   = 4 << 20
)

var _ kv.Store = (*store)(nil)

// store is a namespace of Redis as a kv.Store.
type store struct {
	names   names
	opts    *Options
	scripts *scripts
	clients *clients
	ping    string // the key that pings read (E4)
	// replaceable says that replicas take over by themselves, as with Sentinel and in a
	// cluster, so that no server can be known again after its restart.
	replaceable bool

	attaching chan struct{} // holds one token: who has it may attach
	history   atomic.Pointer[history]

	life    context.Context // ends with Close
	end     context.CancelFunc
	mu      sync.Mutex // guards closed, and the start of goroutines against it
	closed  bool
	running sync.WaitGroup
}

func newStore(c *goredis.UniversalOptions, namespace string, o *Options) (*store, error) {
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

// ask runs a script, and checks how its answer begins. A server that has another history
// than the store knows, or is a replica, or was one until now and has none, has run
// nothing: the store attaches to it anew, and the script is sent once more if the namespace
// goes on.
func (s *store) ask(
	ctx context.Context, beat bool, script *goredis.Script, keys []string, args []any, replicas int, words ...string,
) (*answer, string, error) {
	for again := false; ; again = true {
		var a *answer
		var word string
		args[0] = s.history.Load().replication
		reply, err := s.run(ctx, beat, script, keys, args, replicas)
		if err == nil {
			a, word, err = newAnswer(reply, words...)
		}
		switch {
		case err == nil:
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

// run runs a script, once, on a connection for heartbeats or on another one. Only a
// script that the server did not know, so that nothing was run, is sent again with its
// text. With replicas it waits for them, on the same connection. The first of args is the
// history.
func (s *store) run(
	ctx context.Context, beat bool, script *goredis.Script, keys []string, args []any, replicas int,
) (any, error) {
	client, give, err := s.clients.take(ctx, beat)
	if err != nil {
		return nil, err
	}
	return during(ctx, s, func(ctx context.Context) (any, error) {
		defer give()
		return redirected(s.clients.dialer, func() (any, error) {
			if replicas > 0 {
				return s.replicated(ctx, client, script, keys, args)
			}
			reply, err := script.EvalSha(ctx, client, keys, args...).Result()
			if unknownScript(err) {
				reply, err = script.Eval(ctx, client, keys, args...).Result()
			}
			return reply, err
		})
	})
}

// replicated runs a script and waits until Options.Replicas replicas have what it wrote.
// What fewer have may be lost with the server, so its outcome is unknown.
func (s *store) replicated(
	ctx context.Context, client *goredis.Client, script *goredis.Script, keys []string, args []any,
) (any, error) {
	send := func(eval func(context.Context, goredis.Scripter, []string, ...any) *goredis.Cmd) (any, error) {
		pipe := client.Pipeline()
		reply := eval(ctx, pipe, keys, args...)
		waited := pipe.Do(ctx, "WAIT", s.opts.Replicas, s.opts.ReplicaTimeout.Milliseconds())
		_, err := pipe.Exec(ctx)
		if err := reply.Err(); err != nil {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("waiting for replicas: %v", err) // in words: the write may be applied
		}
		if n, err := waited.Int(); err != nil || n < s.opts.Replicas {
			return nil, fmt.Errorf("%d of %d replicas have the write after %v: look at their lag, or lower Options.Replicas",
				n, s.opts.Replicas, s.opts.ReplicaTimeout)
		}
		return reply.Val(), nil
	}
	reply, err := send(script.EvalSha)
	if unknownScript(err) {
		reply, err = send(script.Eval)
	}
	return reply, err
}

// during makes a call of the client, which heeds the deadline of a context but not its
// end, and returns when ctx ends. Close waits for the call.
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

// Get reads keys in one step. A ping is read on a connection for heartbeats (E4).
func (s *store) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	args := make([]any, 0, 1+len(keys))
	args = append(args, nil)
	for _, key := range keys {
		args = append(args, s.names.record(key))
	}
	beat := len(keys) == 1 && keys[0] == s.ping
	a, _, err := s.ask(ctx, beat, s.scripts.get, s.names.fixed()[:1], args, 0, answerRead)
	if err != nil {
		return nil, err
	}
	page := &kv.Page{Rev: a.rev(), Pairs: make([]kv.Pair, 0, len(keys))}
	for _, key := range keys {
		page.Pairs = append(page.Pairs, a.pair(key))
	}
	return page, a.end()
}

// Range reads in pages, and returns the revision of the first: what changed since may be
// in later ones.
func (s *store) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	page := &kv.Page{}
	prefix := s.names.record(q.Prefix)
	from, end := "["+max(prefix, s.names.record(q.From)), "("+prefix+"\xff"
	for {
		limit := pageRecords
		if q.Limit > 0 {
			limit = min(limit, q.Limit-len(page.Pairs))
		}
		more, last, err := s.page(ctx, page, from, end, limit, q.KeysOnly)
		if err != nil {
			return nil, err
		}
		if !more || q.Limit > 0 && len(page.Pairs) >= q.Limit {
			return page, nil
		}
		from = "(" + last
	}
}

// page reads the next records of a range.
func (s *store) page(
	ctx context.Context, page *kv.Page, from, end string, limit int, keysOnly bool,
) (more bool, last string, err error) {
	bare := "0"
	if keysOnly {
		bare = "1"
	}
	a, _, err := s.ask(ctx, false, s.scripts.scan, s.names.fixed()[:2], []any{nil, from, end, limit, pageBytes, bare}, 0,
		answerRead)
	if err != nil {
		return false, "", err
	}
	rev := a.rev()
	if page.Rev == 0 {
		page.Rev = rev
	}
	more = a.number() == 1
	for len(a.items) > 0 && !a.wrong {
		last = a.text()
		page.Pairs = append(page.Pairs, a.pair(s.names.root+last))
	}
	if err := a.end(); err != nil || more && last == "" {
		return false, "", errors.Join(err, errShape)
	}
	return more, last, nil
}
