package follower

import (
	"context"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

// faultyBackend sits between a Tailer and its backend and may change the store's answers.
type faultyBackend struct {
	driver.Backend
	mu    sync.Mutex
	tail  func(ctx context.Context, since driver.Cursor, page *driver.TailPage, err error) (*driver.TailPage, error)
	read  func(shard driver.ShardID, after driver.Seq, page *driver.LogPage, err error) (*driver.LogPage, error)
	down  error // if not nil, the answer to every call; no call then reaches the store
	ends  map[*context.CancelCauseFunc]bool
	reads int
	tails int
}

func (p *faultyBackend) TailLog(ctx context.Context, since driver.Cursor, limit int) (*driver.TailPage, error) {
	p.mu.Lock()
	f, down := p.tail, p.down
	p.tails++
	p.mu.Unlock()
	if down != nil {
		return nil, down
	}
	call, end := p.open(ctx)
	defer end()
	page, err := p.Backend.TailLog(call, since, limit)
	if call.Err() != nil && ctx.Err() == nil {
		return nil, context.Cause(call)
	}
	if f != nil {
		return f(ctx, since, page, err)
	}
	return page, err
}

func (p *faultyBackend) ReadLog(
	ctx context.Context, shard driver.ShardID, after driver.Seq, limit int,
) (*driver.LogPage, error) {
	p.mu.Lock()
	f, down := p.read, p.down
	p.reads++
	p.mu.Unlock()
	if down != nil {
		return nil, down
	}
	page, err := p.Backend.ReadLog(ctx, shard, after, limit)
	if f != nil {
		return f(shard, after, page, err)
	}
	return page, err
}

// open returns a context that also ends when the store goes down.
func (p *faultyBackend) open(ctx context.Context) (context.Context, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	if p.ends == nil {
		p.ends = make(map[*context.CancelCauseFunc]bool)
	}
	p.ends[&cancel] = true
	return ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		cancel(nil)
		delete(p.ends, &cancel)
	}
}

func (p *faultyBackend) count() (reads, tails int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads, p.tails
}

func (p *faultyBackend) isDown() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

func (p *faultyBackend) setDown(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = err
	if err != nil {
		for end := range p.ends {
			(*end)(err)
		}
	}
}
