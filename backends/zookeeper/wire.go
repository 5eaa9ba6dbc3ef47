package zookeeper

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// observedConn observes the bytes read from a connection, because the client library reports
// neither the time of the last byte nor the zxid in each reply's header. The server has applied all
// writes up to that zxid.
//
// It also omits needless pings, because the library sends a ping in each third of the session's
// timeout, even if it sends other requests.
type observedConn struct {
	net.Conn
	own     *lastRead
	server  *lastRead    // of all connections to the server
	zxid    atomic.Int64 // of the latest reply
	timeout atomic.Int64 // of the session, as granted by the server; 0 if unknown
	sent    atomic.Int64 // time of the last bytes except pings, in own's units

	// Only the reading goroutine uses the fields below.
	head  [16]byte // of the frame: its length and, except in the first frame, xid and zxid
	have  int      // bytes of head
	left  int      // remaining bytes of the frame
	begun bool     // the first frame, which has a different header, was read
}

func newObservedConn(conn net.Conn, server *lastRead) *observedConn {
	return &observedConn{Conn: conn, own: newLastRead(), server: server}
}

// Read observes the bytes that it returns.
func (t *observedConn) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if n > 0 {
		t.own.touch()
		t.server.touch()
		t.feed(p[:n])
	}
	return n, err
}

// ping is the library's ping: a length, the xid -2, and the operation 11.
var ping = []byte{0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 11}

// Write sends everything except needless pings. A ping is needless if the last request was sent
// less than half a ping interval ago and something has been read since then. The next ping then
// follows the last request within half of the session's timeout. The server ends the session after
// a whole timeout without requests. The library ends the connection if nothing arrives for two
// thirds of the timeout.
func (t *observedConn) Write(p []byte) (int, error) {
	now := t.own.now()
	if bytes.Equal(p, ping) {
		sent := t.sent.Load()
		if now-sent < t.timeout.Load()/6 && t.own.heard.Load() > sent {
			return len(p), nil
		}
	} else {
		t.sent.Store(now)
	}
	return t.Conn.Write(p)
}

// lastRead is the time at which the last byte arrived. A lastRead is safe for concurrent use.
type lastRead struct {
	start time.Time
	heard atomic.Int64 // time since start
}

func newLastRead() *lastRead { return &lastRead{start: time.Now()} }

func (v *lastRead) now() int64 { return int64(time.Since(v.start)) }

func (v *lastRead) touch() { v.heard.Store(v.now()) }

// silence returns the time since the last read.
func (v *lastRead) silence() time.Duration { return time.Duration(v.now() - v.heard.Load()) }

// silentSince reports whether nothing has been read since the given time.
func (v *lastRead) silentSince(moment time.Time) bool {
	return v.heard.Load() < int64(moment.Sub(v.start))
}

func (t *observedConn) feed(p []byte) {
	for len(p) > 0 {
		if t.have < 4 {
			n := copy(t.head[t.have:4], p)
			t.have += n
			p = p[n:]
			if t.have == 4 {
				t.left = int(binary.BigEndian.Uint32(t.head[:4]))
			}
		} else {
			n := min(len(p), t.left)
			t.have += copy(t.head[t.have:], p[:n])
			t.left -= n
			p = p[n:]
		}
		if t.have >= 4 && t.left == 0 {
			t.frame()
			t.have = 0
		}
	}
}

// frame reads a complete frame. Events and pings have a negative xid.
func (t *observedConn) frame() {
	if !t.begun { // it contains a version, the time-out in ms, and the session
		t.begun = true
		if t.have >= 12 {
			t.timeout.Store(int64(binary.BigEndian.Uint32(t.head[8:])) * int64(time.Millisecond))
		}
		return
	}
	if t.have < len(t.head) || int32(binary.BigEndian.Uint32(t.head[4:])) < 0 {
		return
	}
	if zxid := int64(binary.BigEndian.Uint64(t.head[8:])); zxid > t.zxid.Load() {
		t.zxid.Store(zxid)
	}
}
