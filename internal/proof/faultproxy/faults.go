package faultproxy

import (
	"fmt"
	"time"
)

// Faults are the faults of a connection. The zero Faults forwards everything immediately.
type Faults struct {
	Requests Flow // from the client to the server
	Replies  Flow // from the server to the client
	// Mute accepts connections and never answers. The server is not dialled, and the client's bytes
	// are dropped. It applies to a connection when it is accepted. Lifting it resets the muted
	// connections.
	Mute bool
}

// Flow has the faults of one direction of a connection.
type Flow struct {
	// Swallow loses everything: the end of the stream, and the bytes held or delayed at that moment
	// too. The package comment describes its lifting. It takes precedence over all other faults.
	Swallow bool
	// Hold keeps everything, including the end of the stream, in order until it is lifted. When
	// Options.MaxHeld bytes are kept, the proxy stops reading from the sender.
	Hold bool
	// Latency is the delay of every piece after it was read. Default 0.
	Latency time.Duration
	// Drip forwards single bytes at this interval. 0 forwards all bytes together.
	Drip time.Duration
	// Decide is called for each frame, in the order of the stream; nil passes all. It needs a
	// Framer for this direction, and must not keep or change the frame. It may be called for
	// several connections concurrently, and may call the proxy's methods except Close.
	Decide func(frame []byte) Verdict
}

// Verdict is the treatment of one frame.
type Verdict uint8

// The verdicts.
const (
	Pass       Verdict = iota // forwarded
	Drop                      // only this frame is lost, and the next one follows
	Duplicate                 // forwarded twice in succession, for protocols that allow it
	LoseAnswer                // forwarded, and everything that comes back on this connection from now on is lost
)

// BlackHole cuts a connection without a reset. Neither side ever receives anything from the other
// again, not even its close.
func BlackHole() Faults {
	return Faults{Requests: Flow{Swallow: true}, Replies: Flow{Swallow: true}}
}

// Framer returns the length of the first frame of b, which may be more than b has. It returns 0 if
// b is too short to decide. It returns a negative number if b does not begin with a frame, and the
// rest of the stream then passes unframed. It is called again with the same bytes and more after
// them. It must not keep or change b, and must be safe for concurrent use.
type Framer func(b []byte) (n int)

func (f Faults) check(o *Options) error {
	for _, d := range [...]struct {
		name   string
		flow   Flow
		framer Framer
	}{{"requests", f.Requests, o.RequestFramer}, {"replies", f.Replies, o.ReplyFramer}} {
		if d.flow.Latency < 0 || d.flow.Drip < 0 {
			return fmt.Errorf("tenure: faultproxy: a delay of the %s is negative: use 0 for none", d.name)
		}
		if d.flow.Decide != nil && d.framer == nil {
			return fmt.Errorf("tenure: faultproxy: Decide needs frames: give Options a framer for the %s", d.name)
		}
	}
	return nil
}
