package zookeeper

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// tap reads along on a connection, because the client library tells neither the
// zxid that every reply has in its header, by which the server says how far it is,
// nor when anything came last.
type tap struct {
	net.Conn
	start time.Time
	zxid  atomic.Int64 // of the latest reply
	heard atomic.Int64 // when the latest bytes came, as time since start

	// Used by the one goroutine that reads.
	head  [16]byte // of the frame: its length and, but for the first, xid and zxid
	have  int      // bytes of head
	left  int      // bytes of the frame that are still to come
	begun bool     // the first frame, which has another header, is over
}

func newTap(conn net.Conn) *tap { return &tap{Conn: conn, start: time.Now()} }

// Read reads along.
func (t *tap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if n > 0 {
		t.heard.Store(int64(time.Since(t.start)))
		t.feed(p[:n])
	}
	return n, err
}

// silentSince reports whether nothing came since a moment.
func (t *tap) silentSince(moment time.Time) bool {
	return t.heard.Load() < int64(moment.Sub(t.start))
}

func (t *tap) feed(p []byte) {
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

// frame looks at a complete frame. Events and pings have a negative xid.
func (t *tap) frame() {
	if !t.begun {
		t.begun = true
		return
	}
	if t.have < len(t.head) || int32(binary.BigEndian.Uint32(t.head[4:])) < 0 {
		return
	}
	if zxid := int64(binary.BigEndian.Uint64(t.head[8:])); zxid > t.zxid.Load() {
		t.zxid.Store(zxid)
	}
}
