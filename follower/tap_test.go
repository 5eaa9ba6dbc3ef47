package follower

import (
	"context"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

// tap sits between a Tailer and its backend and may change what the store answers.
type tap struct {
	driver.Backend
	mu    sync.Mutex
	tail  func(ctx context.Context, since driver.Cursor, page *driver.TailPage, err error) (*driver.TailPage, error)
	read  func(shard driver.ShardID, after driver.Seq, page *driver.LogPage, err error) (*driver.LogPage, error)
	down  error // what every call answers, without asking the store
	reads int
	tails int
}

func (p *tap) TailLog(ctx context.Context, since driver.Cursor, limit int) (*driver.TailPage, error) {
	p.mu.Lock()
	f, down := p.tail, p.down
	p.tails++
	p.mu.Unlock()
	if down != nil {
		return nil, down
	}
	page, err := p.Backend.TailLog(ctx, since, limit)
	if f != nil {
		return f(ctx, since, page, err)
	}
	return page, err
}

func (p *tap) ReadLog(ctx context.Context, shard driver.ShardID, after driver.Seq, limit int) (*driver.LogPage, error) {
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

func (p *tap) count() (reads, tails int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads, p.tails
}

func (p *tap) setDown(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = err
}
