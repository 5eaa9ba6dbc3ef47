package etcd

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// TestNudge: after a call that found no server, the connections are retried immediately, even if
// gRPC would wait for long. The race detector would fail if nudge touched new connections.
func TestNudge(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var tried atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tried.Add(1)
			c.Close()
		}
	}()
	c := clientv3.Config{Endpoints: []string{l.Addr().String()}, DialOptions: []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Hour, Multiplier: 1, MaxDelay: time.Hour}})}}
	s, err := newStore(newClient(t, c), &Options{MaxRequestBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	down := status.Error(codes.Unavailable, "no server")
	if !ample.Soon(t.Context(), func() bool {
		s.nudge(down)
		s.cluster.members[0].conn.Connect()
		return tried.Load() >= 20
	}) {
		t.Fatalf("a connection was tried %d times, want 20", tried.Load())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 300 { // each has a new connection
			s.mu.Lock()
			s.renew(0)
			begins := s.cluster.members[0].beatConn
			s.mu.Unlock()
			begins.Connect()
		}
	}()
	for {
		s.nudge(down)
		select {
		case <-done:
			return
		default:
		}
	}
}
