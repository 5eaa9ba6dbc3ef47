package faultproxy

import (
	"fmt"
	"time"
)

// Faults configures a connection's faults. The zero Faults forwards everything immediately.
type Faults struct {
	Requests Flow // from the client to the server
	Replies  Flow // from the server to the client
	// Mute makes the proxy accept connections but never answer. The proxy does not dial the server,
	// and drops the client's bytes. Mute affects only connections that the proxy accepts while Mute
	// is set. When Mute is lifted, the proxy resets the muted connections.
	Mute bool
}

// Flow configures the faults in one direction of a connection.
type Flow struct {
	// Swallow loses all bytes, including held and delayed bytes, and the end of the stream. The
	// package comment describes what happens when Swallow is lifted. Swallow takes precedence over
	// all other faults.
	Swallow bool
	// Hold holds back all bytes and the end of the stream until Hold is lifted. When the proxy
	// holds Options.MaxHeld bytes, it stops reading from the sender.
	Hold bool
	// Latency is how long the proxy delays bytes after reading them. The default is no delay.
	Latency time.Duration
	// Drip is the interval at which the proxy forwards single bytes. If Drip is 0, the proxy
	// forwards all bytes together.
	Drip time.Duration
	// Decide is called with each frame, in stream order. If Decide is nil, all frames pass.
	// Decide requires a Framer for this direction, and must not keep or change the frame. The proxy
	// may call Decide for several connections concurrently. Decide may call any of the proxy's
	// methods except Close.
	Decide func(frame []byte) Verdict
}

// Verdict is a decision about one frame.
type Verdict uint8

// These are the verdicts.
const (
	Pass       Verdict = iota // forwarded
	Drop                      // only this frame is lost, and the next frame is forwarded
	Duplicate                 // forwarded twice in succession, for protocols that allow it
	LoseAnswer                // forwarded, and all later bytes from the other side are lost
)

// BlackHole returns Faults that cut a connection without a reset. Neither side receives anything
// more from the other side, not even a close.
func BlackHole() Faults {
	return Faults{Requests: Flow{Swallow: true}, Replies: Flow{Swallow: true}}
}

// Framer returns the length of the first frame in b. The frame may be longer than b. If b is too
// short to determine the length, the Framer returns 0, and the proxy reads more bytes. If b does
// not begin with a frame, the Framer returns a negative number, and the rest of the stream passes
// without frames. A Framer must not keep or change b, and must be safe for concurrent use.
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
