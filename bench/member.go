package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// contender is one way to own shards: Tenure, or what a user of the store would pick.
type contender struct {
	name string
	ours bool
	// ttl is the shortest TTL that it is used with, for the row of crashes; 0: it has none.
	ttl time.Duration
	// most is the number of shards that one member may contend for; 0: any. why is the reason.
	most int
	why  string
	// waits is the number of shards in the row of memory; 0: 1,000.
	waits int
	// onlyShards and onlyLocks restrict it to some of the rows.
	onlyShards, onlyLocks bool

	join func(ctx context.Context, at place) (member, error)
}

// place is where a member takes part. Processes get it as JSON.
type place struct {
	DSN       string
	Namespace string // a name, without "/"
	Node      string
	TTL       time.Duration
	traces    string // the directory for traces of a Tenure member; empty: no traces
	// fail reports an error that a member cannot return. Calling it once is enough.
	fail func(error)
}

// member is one process's part in an election, with its own connections. Methods are safe for
// concurrent use.
type member interface {
	// want contends for the shards, and returns. Any goroutine may call won, for each grant.
	want(shards []string, won func(grant)) error
	// release gives back a held shard, and ends the contention for it.
	release(ctx context.Context, shard string) error
	// close ends everything. Its shards may stay held until the TTL is over.
	close() error
}

// grant is a shard that a member owns. write writes once, under the best fence of this way of
// owning.
type grant struct {
	shard string
	write func(ctx context.Context) error
}

// body returns the content of one write.
func body() []byte { return make([]byte, 128) }

// locks is a member of a peer whose lock is one blocking call for each shard.
type locks struct {
	at place
	// take blocks until it has the shard, or ctx ends. unlock gives it back.
	take func(ctx context.Context, shard string) (write, unlock func(ctx context.Context) error, err error)
	// leave ends what the locks share, and so every lock. It runs after ctx has ended.
	leave func() error

	ctx    context.Context
	cancel context.CancelFunc
	calls  sync.WaitGroup
	first  chan struct{} // tokens of calls that do not wait yet

	mu   sync.Mutex
	held map[string]func(ctx context.Context) error
}

const (
	// atOnce is the number of calls of take under way, except those that wait.
	atOnce = 64
	// patience is the time after which a call of take counts as waiting.
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

// polled is a member of a peer that asks repeatedly for everything that it wants.
type polled struct {
	at place
	// take claims the free ones of the wanted shards. keep renews the held ones. give gives one
	// back. leave closes the connections.
	take  func(ctx context.Context, wanted []string) ([]grant, error)
	keep  func(ctx context.Context, held []string) error
	give  func(ctx context.Context, shard string) error
	leave func()
	// once locks one name briefly, apart from the others.
	once func(ctx context.Context, name string) (unlock func(ctx context.Context) error, err error)

	stop context.CancelFunc
	done chan struct{}
	kick chan struct{}

	mu     sync.Mutex
	wanted map[string]func(grant)
	held   map[string]bool
}

// pollsPerTTL is how often it polls: about as often as client-go by default.
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

// names returns the wanted shards, or the held ones.
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
