package faultproxy

import "context"

// Stats are the counts of a proxy since it was made.
type Stats struct {
	Accepted   int64 // connections accepted
	Open       int64 // accepted connections that have not ended
	Surplus    int64 // connections reset immediately, because Options.MaxConns were open
	Resets     int64 // connections that the proxy reset: by a call, by lifting a fault, or after a peer did
	DialErrors int64 // connections reset because the server could not be reached
	BadFrames  int64 // connections reset because a frame was longer than Options.MaxFrame
	Requests   FlowStats
	Replies    FlowStats
}

// FlowStats counts one direction of all connections. Bytes of an incomplete frame
// are in Read only.
type FlowStats struct {
	Read       int64 // bytes read from the sender
	Forwarded  int64 // bytes written to the receiver
	Swallowed  int64 // bytes lost: swallowed, in dropped frames, or left at the connection's end
	Held       int64 // bytes waiting now, because of Hold, Latency, Drip or a slow receiver
	Frames     int64 // complete frames read; 0 without a framer
	Dropped    int64 // frames lost by Drop
	Duplicated int64 // frames forwarded twice
}

func (s *Stats) flow(d direction) *FlowStats {
	if d == requests {
		return &s.Requests
	}
	return &s.Replies
}

// Stats returns the current counts.
func (p *Proxy) Stats() Stats {
	p.countMu.Lock()
	defer p.countMu.Unlock()
	return p.stats
}

// Wait blocks until cond holds for the counts, and returns nil. If ctx ends first, it returns ctx's
// cause, and if the proxy is closed, ErrClosed. It calls cond with a copy, in this goroutine.
func (p *Proxy) Wait(ctx context.Context, cond func(Stats) bool) error {
	for {
		p.countMu.Lock()
		s := p.stats
		if p.counted == nil {
			p.counted = make(chan struct{})
		}
		changed := p.counted
		p.countMu.Unlock()
		if cond(s) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.ctx.Done():
			return ErrClosed
		}
	}
}

// count changes the counts and wakes the goroutines that wait for them.
func (p *Proxy) count(f func(*Stats)) {
	p.countMu.Lock()
	defer p.countMu.Unlock()
	f(&p.stats)
	if p.counted != nil {
		close(p.counted)
		p.counted = nil
	}
}
