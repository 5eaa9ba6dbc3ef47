package faultproxy

import (
	"fmt"
	"time"
)

// Faults are the faults of a connection. The zero Faults forwards everything at
// once.
type Faults struct {
	Requests Flow // from the client to the server
	Replies  Flow // from the server to the client
	// Mute accepts connections and never answers: the server is not dialled, and
	// the client's bytes are dropped. It is decided when a connection is accepted;
	// lifting it resets those that it muted.
	Mute bool
}

// Flow has the faults of one direction of a connection.
type Flow struct {
	// Swallow loses everything, the end of the stream included, and the bytes held
	// or delayed at that moment as well. See the package comment for its lifting.
	// It goes before all else.
	Swallow bool
	// Hold keeps everything, in order and the end of the stream included, until it
	// is lifted. When Options.MaxHeld bytes are kept the sender is no longer read.
	Hold bool
	// Latency delays every piece by this much after it was read. Default 0.
	Latency time.Duration
	// Drip forwards single bytes, this far apart. 0 forwards all bytes at once.
	Drip time.Duration
	// Decide is asked about each frame, in the order of the stream; nil passes
	// all. It needs a Framer for this direction, and must not keep or change the
	// frame. It may be called for several connections at once, and may call the
	// proxy's methods except Close.
	Decide func(frame []byte) Verdict
}

// Verdict is the treatment of one frame.
type Verdict uint8

// The verdicts.
const (
	Pass       Verdict = iota // forwarded
	Drop                      // lost, and only it: the stream goes on with the next frame
	Duplicate                 // forwarded twice in a row, for protocols that allow it
	LoseAnswer                // forwarded, and all that comes back on this connection from now on is lost
)

// BlackHole cuts a connection without a reset: neither side ever hears from the
// other again, not even that it closed.
func BlackHole() Faults {
	return Faults{Requests: Flow{Swallow: true}, Replies: Flow{Swallow: true}}
}

// Framer returns the length of the first frame of b, which may be more than b
// holds; 0 if b is too short to decide; or a negative number if b does not start
// with a frame, after which the rest of the stream passes unframed. It is called
// again with the same bytes and more behind them, must not keep or change b, and
// must be safe for concurrent use.
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
