package faultproxy

import (
	"errors"
	"io"
	"net"
	"time"
)

// pump forwards one direction of a connection. One goroutine reads into a queue, and another
// goroutine forwards from this queue. Faults apply when bytes leave the queue, and therefore also
// to waiting bytes.
type pump struct {
	c        *Conn
	dir      direction
	src, dst *net.TCPConn
	framer   Framer
	partial  []byte // part of a frame; only for the reader

	// Guarded by c.mu.
	queue []piece
	held  int       // bytes in queue, or being written
	lost  bool      // bytes were lost, so nothing more is forwarded
	last  time.Time // time of the last forwarding
}

type piece struct {
	data  []byte
	at    time.Time // when it was read
	end   bool
	reset bool // with end: the sender reset the connection
}

// read fills the queue until the stream or the connection ends.
func (p *pump) read() {
	buf := make([]byte, 32<<10)
	for p.room() {
		n, err := p.src.Read(buf)
		if n > 0 {
			p.c.proxy.count(func(s *Stats) { s.flow(p.dir).Read += int64(n) })
			p.take(buf[:n])
		}
		if err != nil {
			if len(p.partial) > 0 {
				p.put(p.partial)
			}
			p.push(piece{end: true, reset: !errors.Is(err, io.EOF)})
			return
		}
	}
}

func (p *pump) room() bool {
	for {
		p.c.mu.Lock()
		full, changed := p.held >= p.c.proxy.o.MaxHeld, p.c.changed
		p.c.mu.Unlock()
		if p.c.ctx.Err() != nil {
			return false
		}
		if !full {
			return true
		}
		select {
		case <-changed:
		case <-p.c.ctx.Done():
		}
	}
}

// take queues bytes from the sender or, with a Framer, only whole frames.
func (p *pump) take(b []byte) {
	if p.framer == nil {
		p.put(b)
		return
	}
	b = append(p.partial, b...)
	for len(b) > 0 {
		n := p.framer(b)
		if n < 0 {
			p.framer = nil
			p.put(b)
			b = nil
			break
		}
		if n > p.c.proxy.o.MaxFrame || n == 0 && len(b) > p.c.proxy.o.MaxFrame {
			p.c.proxy.count(func(s *Stats) { s.BadFrames++ })
			p.c.Reset()
			return
		}
		if n == 0 || n > len(b) {
			break
		}
		p.frame(b[:n])
		b = b[n:]
	}
	p.partial = append([]byte(nil), b...)
}

func (p *pump) frame(b []byte) {
	p.c.mu.Lock()
	decide := p.c.faults.flow(p.dir).Decide
	p.c.mu.Unlock()
	p.c.proxy.count(func(s *Stats) { s.flow(p.dir).Frames++ })
	v := Pass
	if decide != nil {
		v = decide(b)
	}
	switch v {
	case Drop:
		p.c.proxy.count(func(s *Stats) {
			s.flow(p.dir).Dropped++
			s.flow(p.dir).Swallowed += int64(len(b))
		})
		return
	case Duplicate:
		p.c.proxy.count(func(s *Stats) { s.flow(p.dir).Duplicated++ })
		p.put(b)
	case LoseAnswer:
		p.c.mu.Lock()
		p.c.pumps[1-p.dir].lost = true
		p.c.mu.Unlock()
	default: // Pass
	}
	p.put(b)
}

func (p *pump) put(b []byte) {
	p.push(piece{data: append([]byte(nil), b...)})
}

func (p *pump) push(x piece) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.ctx.Err() != nil {
		return // no goroutine will forward it
	}
	x.at = time.Now()
	p.queue = append(p.queue, x)
	p.hold(len(x.data))
	p.c.wakeLocked()
}

// hold adds n to the number of waiting bytes. The caller holds c.mu.
func (p *pump) hold(n int) {
	p.held += n
	p.c.proxy.count(func(s *Stats) { s.flow(p.dir).Held += int64(n) })
}

// write empties the queue until the stream or the connection ends.
func (p *pump) write() {
	defer p.abandon()
	for {
		x, ok := p.next()
		if !ok {
			return
		}
		if x.end {
			if x.reset {
				p.c.Reset()
			} else {
				_ = p.dst.CloseWrite() // fails only if the receiver has closed, which its reader reports
			}
			return
		}
		n, err := p.dst.Write(x.data)
		p.c.mu.Lock()
		p.hold(-len(x.data))
		// If the receiver has closed the connection, the pump for the opposite direction detects
		// this. Earlier bytes from the receiver may still be waiting there, so write does not cut
		// the connection.
		p.lost = p.lost || err != nil
		p.c.proxy.count(func(s *Stats) {
			s.flow(p.dir).Forwarded += int64(n)
			s.flow(p.dir).Swallowed += int64(len(x.data) - n)
		})
		p.c.wakeLocked()
		p.c.mu.Unlock()
	}
}

// next returns the next piece to forward, or false if there will be no further piece.
func (p *pump) next() (piece, bool) {
	for {
		if p.c.ctx.Err() != nil {
			return piece{}, false
		}
		p.c.mu.Lock()
		x, ok, ended, pause := p.pop(time.Now())
		changed := p.c.changed
		p.c.mu.Unlock()
		if ended {
			return piece{}, false
		}
		if ok {
			return x, true
		}
		p.wait(changed, pause)
	}
}

// wait waits for a change or for the connection's end. A pause other than 0 limits the wait.
func (p *pump) wait(changed <-chan struct{}, pause time.Duration) {
	var timer <-chan time.Time
	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-changed:
	case <-timer:
	case <-p.c.ctx.Done():
	}
}

// pop returns the bytes that may pass now. If there are none, pause limits the wait for a change,
// and 0 means no limit. The caller holds c.mu.
func (p *pump) pop(now time.Time) (x piece, ok, ended bool, pause time.Duration) {
	f := p.c.faults.flow(p.dir)
	if f.Swallow || p.lost {
		return piece{}, false, p.discard(), 0
	}
	if f.Hold || len(p.queue) == 0 {
		return piece{}, false, false, 0
	}
	x = p.queue[0]
	due := x.at.Add(f.Latency)
	if drip := p.last.Add(f.Drip); f.Drip > 0 && drip.After(due) {
		due = drip
	}
	if wait := due.Sub(now); wait > 0 {
		return piece{}, false, false, wait
	}
	p.last = now
	if f.Drip > 0 && len(x.data) > 1 {
		p.queue[0].data = x.data[1:]
		x.data = x.data[:1]
	} else {
		p.queue = p.queue[1:]
	}
	return x, true, false, 0
}

// discard drops the queue, and reports whether the queue contained the end of the stream. The
// caller holds c.mu.
func (p *pump) discard() (ended bool) {
	n := 0
	for _, x := range p.queue {
		n += len(x.data)
		ended = ended || x.end
	}
	if len(p.queue) == 0 {
		return false
	}
	p.lost = true
	p.queue = nil
	p.hold(-n)
	p.c.proxy.count(func(s *Stats) { s.flow(p.dir).Swallowed += int64(n) })
	p.c.wakeLocked()
	return ended
}

// abandon counts the bytes in the queue as lost, because the connection has ended.
func (p *pump) abandon() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.discard()
}
