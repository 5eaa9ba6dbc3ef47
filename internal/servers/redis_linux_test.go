package servers

import (
	"context"
	"net"
	"testing"
	"time"
)

// pings reports whether a server of Redis answers.
func pings(t *testing.T, s *Server) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	return probeRedis(conn, s.files) == nil
}

func TestRedisFaults(t *testing.T) {
	t.Parallel()
	s := fresh(t, Redis, nil)
	if !pings(t, s) {
		t.Fatal("a started server does not answer")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pings(t, s) {
		t.Error("a stopped server answers")
	}
	if err := s.Cont(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server goes on", func() bool { return pings(t, s) })
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pings(t, s) {
		t.Error("a killed server answers")
	}
	if err := s.Restart(t.Context()); err != nil || !pings(t, s) {
		t.Error("after a restart:", err)
	}
}

func TestRedisTLS(t *testing.T) {
	t.Parallel()
	for _, level := range []TLS{TLSServer, TLSMutual} {
		if s := fresh(t, Redis, &Options{TLS: level}); !pings(t, s) {
			t.Errorf("no answer over TLS at level %d", level)
		}
	}
}
