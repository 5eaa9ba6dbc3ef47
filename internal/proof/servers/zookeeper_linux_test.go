package servers

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

func answers(t *testing.T, s *Server) bool {
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
	return probeZooKeeper(conn, s.files) == nil
}

func TestZooKeeperFaults(t *testing.T) {
	t.Parallel()
	s := fresh(t, ZooKeeper, &Options{Config: []string{"tickTime = 200"}})
	eventually(t, "an answer", func() bool { return answers(t, s) })
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if answers(t, s) {
		t.Error("a stopped server answers")
	}
	if err := s.Cont(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server goes on", func() bool { return answers(t, s) })
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if answers(t, s) {
		t.Error("a killed server answers")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Error("after a restart:", err)
	}
	eventually(t, "an answer after a restart", func() bool { return answers(t, s) })
}

func TestZooKeeperTLS(t *testing.T) {
	t.Parallel()
	for _, level := range []TLS{TLSServer, TLSMutual} {
		s := fresh(t, ZooKeeper, &Options{TLS: level})
		eventually(t, "an answer over TLS", func() bool { return answers(t, s) })
		plain := &Server{kind: ZooKeeper, user: s.user}
		if answers(t, plain) {
			t.Error("an answer without TLS")
		}
	}
}

func TestZooKeeperEnsemble(t *testing.T) {
	t.Parallel()
	if os.Getenv(ZooKeeper.variable()) != "" {
		t.Skipf("%s names a running ensemble: this test is about those that are started", ZooKeeper.variable())
	}
	c := NewCluster(t, ZooKeeper, 3, &Options{Config: []string{"tickTime = 200"}})
	members := c.Members()
	for _, s := range members {
		if !answers(t, s) {
			t.Errorf("%s does not serve", s.Addr())
		}
	}
	for _, s := range members[:2] {
		if err := s.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one of three stops to serve", func() bool { return !answers(t, members[2]) })
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range members {
		eventually(t, s.Addr()+" serves again", func() bool { return answers(t, s) })
	}
}

func TestZooKeeperFromEnvironment(t *testing.T) {
	Short(t, ZooKeeper)
	t.Setenv(ZooKeeper.variable(), "me:word@a.example:2181,b.example:2181")
	s, err := Start(t.Context(), ZooKeeper, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Addr() != "a.example:2181,b.example:2181" || s.User().User() != "me" || s.User().Password() != "word" {
		t.Errorf("got %v", s.User())
	}
	if err := s.Kill(t.Context()); !errors.Is(err, ErrUnsupported) {
		t.Errorf("killing it: %v", err)
	}
	t.Setenv(ZooKeeper.variable(), "me:planted@nowhere")
	if _, err := Start(t.Context(), ZooKeeper, nil); err == nil {
		t.Error("an address without a port was taken")
	}
}
