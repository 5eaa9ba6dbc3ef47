package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A contender is either Tenure or an alternative that the store's users choose.
type contender struct {
	name string
	ours bool
	// The takeover row uses this TTL, the shortest that suits the contender. The value 0 means that
	// the contender has no TTL.
	ttl time.Duration
	// A member contends for at most this number of shards, or for any number if the limit is 0.
	most int
	why  string
	// This is the number of shards in the memory row. The value 0 means 1,000.
	waits int
	// These fields restrict the contender to the rows for shards or locks.
	onlyShards, onlyLocks bool

	join func(ctx context.Context, at place) (member, error)
}

// Member processes read their place as JSON.
type place struct {
	DSN       string
	Namespace string // a name, without "/"
	Node      string
	TTL       time.Duration
	traces    string // the directory for traces of a Tenure member; empty: no traces
	// Members call fail with errors that they cannot return. One call is enough.
	fail func(error)
}

// A member is one process's part in an election, with separate connections. Its methods are safe
// for concurrent use.
type member interface {
	// For each grant, any goroutine may call won.
	want(shards []string, won func(grant)) error
	// Releasing a held shard also ends the contention for it.
	release(ctx context.Context, shard string) error
	// The shards of a closed member may stay held until the TTL has passed.
	close() error
}

// A grant is a shard that a member owns. Its write function makes one write, under the best fence
// that the contender has.
type grant struct {
	shard string
	write func(ctx context.Context) error
}

func body() []byte { return make([]byte, 128) }

// Contenders that make one blocking call for each shard use locks as their member.
type locks struct {
	at place
	// The call blocks until the member owns the shard or ctx ends.
	take func(ctx context.Context, shard string) (write, unlock func(ctx context.Context) error, err error)
	// After ctx ends, leave closes the locks' shared resources, and thus ends every lock.
	leave func() error

	ctx    context.Context
	cancel context.CancelFunc
	calls  sync.WaitGroup
	first  chan struct{} // has a token for each call that does not wait yet

	mu   sync.Mutex
	held map[string]func(ctx context.Context) error
}

const (
	// This is the maximum number of concurrent calls to take, without those that are waiting.
	atOnce = 64
	// After this time, a call to take counts as waiting.
	patience = 50 * time.Millisecond
)

func newLocks(at place) *locks {
	l := &locks{at: at, first: make(chan struct{}, atOnce), held: make(map[string]func(ctx context.Context) error)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *locks) want(shards []string, won func(grant)) error {
	for _, shard := range shards {
		l.calls.Go(func() { l.await(shard, won) })
	}
	return nil
}

func (l *locks) await(shard string, won func(grant)) {
	l.first <- struct{}{}
	done := sync.OnceFunc(func() { <-l.first })
	waits := time.AfterFunc(patience, done)
	write, unlock, err := l.take(l.ctx, shard)
	waits.Stop()
	done()
	if err != nil {
		if l.ctx.Err() == nil {
			l.at.fail(fmt.Errorf("lock %s: %w", shard, err))
		}
		return
	}
	l.mu.Lock()
	l.held[shard] = unlock
	l.mu.Unlock()
	won(grant{shard, write})
}

func (l *locks) release(ctx context.Context, shard string) error {
	l.mu.Lock()
	unlock := l.held[shard]
	delete(l.held, shard)
	l.mu.Unlock()
	if unlock == nil {
		return fmt.Errorf("%s is not held", shard)
	}
	return unlock(ctx)
}

func (l *locks) close() error {
	l.cancel()
	err := l.leave()
	l.calls.Wait()
	return err
}

// Contenders that poll for shards use polled as their member.
type polled struct {
	at place
	// Calling take claims the wanted shards that are free. Calling keep renews the held shards.
	take  func(ctx context.Context, wanted []string) ([]grant, error)
	keep  func(ctx context.Context, held []string) error
	give  func(ctx context.Context, shard string) error
	leave func()
	// Names are locked briefly, and independently of the shards.
	once func(ctx context.Context, name string) (unlock func(ctx context.Context) error, err error)

	stop context.CancelFunc
	done chan struct{}
	kick chan struct{}

	mu     sync.Mutex
	wanted map[string]func(grant)
	held   map[string]bool
}

// pollsPerTTL is the number of polls within a TTL, which is similar to client-go's default.
const pollsPerTTL = 8

func (p *polled) start() {
	ctx, stop := context.WithCancel(context.Background())
	p.stop, p.done, p.kick = stop, make(chan struct{}), make(chan struct{}, 1)
	p.wanted, p.held = make(map[string]func(grant)), make(map[string]bool)
	go func() {
		defer close(p.done)
		poll, renew := time.NewTicker(p.at.TTL/pollsPerTTL), time.NewTicker(p.at.TTL/3)
		defer poll.Stop()
		defer renew.Stop()
		for {
			err := p.poll(ctx)
			select {
			case <-ctx.Done():
				return
			case <-p.kick:
			case <-poll.C:
			case <-renew.C:
				err = errors.Join(err, p.keep(ctx, p.names(false)))
			}
			if err != nil && ctx.Err() == nil {
				p.at.fail(err)
				return
			}
		}
	}()
}

// The result contains the held shards, or the wanted shards that are not held.
func (p *polled) names(wanted bool) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for s := range p.wanted {
		if p.held[s] != wanted {
			names = append(names, s)
		}
	}
	slices.Sort(names) // rows are locked in one order
	return names
}

func (p *polled) poll(ctx context.Context) error {
	wanted := p.names(true)
	if len(wanted) == 0 {
		return nil
	}
	grants, err := p.take(ctx, wanted)
	for _, g := range grants {
		p.mu.Lock()
		won := p.wanted[g.shard]
		p.held[g.shard] = true
		p.mu.Unlock()
		won(g)
	}
	return err
}

func (p *polled) want(shards []string, won func(grant)) error {
	p.mu.Lock()
	for _, s := range shards {
		p.wanted[s] = won
	}
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
	return nil
}

func (p *polled) release(ctx context.Context, shard string) error {
	p.mu.Lock()
	delete(p.wanted, shard)
	delete(p.held, shard)
	p.mu.Unlock()
	return p.give(ctx, shard)
}

func (p *polled) close() error {
	p.stop()
	<-p.done
	p.leave()
	return nil
}
