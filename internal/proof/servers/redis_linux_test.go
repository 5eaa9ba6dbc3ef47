package servers

import (
	"context"
	"net"
	"strings"
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
	eventually(t, "an answer", func() bool { return pings(t, s) })
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
	if err := s.Restart(t.Context()); err != nil {
		t.Error("after a restart:", err)
	}
	eventually(t, "an answer after a restart", func() bool { return pings(t, s) })
}

func TestRedisTLS(t *testing.T) {
	t.Parallel()
	for _, level := range []TLS{TLSServer, TLSMutual} {
		if s := fresh(t, Redis, &Options{TLS: level}); !pings(t, s) {
			t.Errorf("no answer over TLS at level %d", level)
		}
	}
}

// TestRedisCluster: each of three nodes has a third of the slots.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	ask := func(s *Server, command ...string) string {
		answer, err := s.inst.(*local).redis(t.Context(), command...)
		if err != nil {
			t.Log(err)
		}
		return answer
	}
	three := NewCluster(t, Redis, 3, nil).Members()
	if got := ask(three[2], "CLUSTER", "KEYSLOT", "x"); got != "16287" || ask(three[2], "SET", "x", "1") != "OK" {
		t.Errorf("the last of three nodes does not take a key of slot %s", got)
	}
	if got := ask(three[0], "SET", "x", "1"); !strings.HasPrefix(got, "MOVED 16287 "+three[2].Addr()) {
		t.Errorf("the first node answers %q for a key of the last one", got)
	}
}

// TestSentinels: the Sentinels name the server that they watch. After that server is killed, they
// name the replica.
func TestSentinels(t *testing.T) {
	t.Parallel()
	one, two := fresh(t, Redis, nil), fresh(t, Redis, nil)
	if _, err := two.inst.(*local).redis(t.Context(), "REPLICAOF", "127.0.0.1", portOf(one)); err != nil {
		t.Fatal(err)
	}
	sentinels := NewCluster(t, Sentinel, 3, &Options{Upstream: one}).Members()
	names := func(s *Server) bool {
		for _, sentinel := range sentinels {
			info, err := sentinel.inst.(*local).redis(t.Context(), "INFO", "sentinel")
			if err != nil || !strings.Contains(info, "address="+s.Addr()+",slaves=1,sentinels=3") {
				return false
			}
		}
		return true
	}
	eventually(t, "all name the server and its replica", func() bool { return names(one) })
	if err := one.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, sentinel := range sentinels {
		_, err := sentinel.inst.(*local).redis(t.Context(), "SENTINEL", "SET", SentinelMaster, "down-after-milliseconds", "500")
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all name the replica", func() bool { return names(two) })
}

func portOf(s *Server) string {
	_, port, _ := strings.Cut(s.Addr(), ":")
	return port
}
