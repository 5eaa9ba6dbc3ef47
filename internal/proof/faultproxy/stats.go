package faultproxy

import "context"

// Stats contains a proxy's counts since its creation.
type Stats struct {
	Accepted   int64 // connections accepted
	Open       int64 // accepted connections that have not ended
	Surplus    int64 // connections reset immediately, because Options.MaxConns were open
	Resets     int64 // connections that the proxy reset, including by lifting a fault or after a peer's reset
	DialErrors int64 // connections reset because the server could not be reached
	BadFrames  int64 // connections reset because a frame was longer than Options.MaxFrame
	Requests   FlowStats
	Replies    FlowStats
}

// FlowStats contains the counts for one direction of all connections. Only Read includes the bytes
// of an incomplete frame.
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

// Wait blocks until cond returns true for the counts, and then returns nil. If ctx ends first, Wait
// returns its cause. If the proxy is closed, Wait returns ErrClosed. Wait calls cond with a copy of
// the counts, in the caller's goroutine.
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
