package zookeeper

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// wireEnd is a connection that counts the bytes written.
type wireEnd struct {
	net.Conn
	reads  [][]byte
	writes int
}

func (e *wireEnd) Write(p []byte) (int, error) { e.writes++; return len(p), nil }

func (e *wireEnd) Read(p []byte) (int, error) {
	n := copy(p, e.reads[0])
	e.reads = e.reads[1:]
	return n, nil
}

// TestPingsLeftOut: a ping is omitted soon after an answered request. It is sent after an
// unanswered request, after an old request, and while the session's time-out is unknown.
func TestPingsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 6 * time.Second // the pings' interval is 2 s
		end := new(wireEnd)
		conn := newObservedConn(end, newLastRead())
		send := func(p []byte) (sent bool) {
			t.Helper()
			before := end.writes
			if n, err := conn.Write(p); n != len(p) || err != nil {
				t.Fatalf("%d bytes, %v", n, err)
			}
			return end.writes > before
		}
		receive := func(p []byte) {
			t.Helper()
			end.reads = append(end.reads, p)
			if _, err := conn.Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
		request := []byte{0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 3}
		reply := []byte{0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}

		time.Sleep(time.Second)
		if !send(request) {
			t.Error("a request was not sent")
		}
		time.Sleep(time.Millisecond)
		// The reply has version 0, the time-out in ms, a session, and an empty password.
		receive([]byte{0, 0, 0, 20, 0, 0, 0, 0, 0, 0, byte(timeout / time.Millisecond >> 8), byte(timeout / time.Millisecond & 0xff),
			0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0})
		for _, c := range []struct {
			name  string
			reply bool
			after time.Duration
			want  bool
		}{
			{"answered, 0.4 intervals ago", true, 800 * time.Millisecond, false},
			{"answered, 0.6 intervals ago", true, 1200 * time.Millisecond, true},
			{"not answered", false, 100 * time.Millisecond, true},
		} {
			time.Sleep(time.Minute)
			if !send(request) {
				t.Error("a request was not sent")
			}
			time.Sleep(time.Millisecond)
			if c.reply {
				receive(reply)
			}
			time.Sleep(c.after)
			if sent := send(ping); sent != c.want {
				t.Errorf("a ping after a request, %s: sent: %v, want %v", c.name, sent, c.want)
			}
		}

		fresh := newObservedConn(end, newLastRead())
		time.Sleep(time.Second)
		conn = fresh
		send(request)
		if !send(ping) {
			t.Error("a ping was left out while the time-out was not known")
		}
	})
}
