package routegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
	"github.com/tenure-go/tenure/sharding/route/routegrpc"
)

// mapping returns the URL of a map in which all keys belong to one member, in shard s-0000. The map
// is served once open is true. If open is nil, the map is always served.
func mapping(t *testing.T, open *atomic.Bool, node, address string, token core.Token) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if open != nil && !open.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.URL.Query().Get("after") == node+".1" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"version":"%[1]s.1","full":true,"keyspace":{"name":"s","hash":"fnv1a-mixed","digits":4},
			"members":{%[1]q:{"grpc":%[2]q}},
			"shards":[{"shard":"s-0000","range":["0x0000000000000000","0x10000000000000000"],"node":%[1]q,"token":%[3]d}]}`, node, address, token)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func mapped(t *testing.T, node, address string, token core.Token) *route.Client {
	t.Helper()
	return reading(t, mapping(t, nil, node, address, token))
}

// reading returns a route.Client that has the map of one of the members.
func reading(t *testing.T, members ...string) *route.Client {
	t.Helper()
	c, err := route.NewClient(&route.ClientOptions{Members: members, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	await(t, "the map of owners", func() bool {
		_, ok := c.Age()
		return ok
	})
	return c
}

// TestConn: a call goes to the owner of its key in one hop. If the map is out of date, the client
// follows the member's answer. No call goes to an address that is not allowed.
func TestConn(t *testing.T) {
	store := memory.New()
	a, b := start(t, store, "a", nil), start(t, store, "b", nil)
	lease := a.own("s-0000", b)
	bad := errors.New("no key")
	key := func(ctx context.Context, method string, req any) (string, error) {
		if r, ok := req.(*grpc_health_v1.HealthCheckRequest); ok && r.Service == "" {
			return "", bad
		}
		return "key", nil
	}
	dial := func(c *route.Client, p *routegrpc.Peers) grpc.ClientConnInterface {
		t.Helper()
		conn, err := routegrpc.NewConn(c, p, key, &routegrpc.ClientOptions{Wait: 20 * time.Millisecond, Attempts: 3})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	check := func(conn grpc.ClientConnInterface, service string) error {
		_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
		return err
	}
	peers := newPeers(t)
	right, stale := dial(mapped(t, "a", a.address, lease.Token()), peers), dial(mapped(t, "b", b.address, lease.Token()-1), peers)
	hits := func(x *atomic.Int64) int64 { return x.Swap(0) }
	if err := check(right, "s-0000"); err != nil || hits(&a.hits) != 1 || hits(&b.hits) != 0 {
		t.Errorf("by the map: %v", err)
	}
	if err := check(stale, "s-0000"); err != nil || hits(&a.hits) != 1 || hits(&b.hits) != 1 {
		t.Errorf("by a map that is out of date: %v", err)
	}
	if err := check(right, "s-0001"); !errors.Is(routegrpc.Error(err), sharding.ErrNoOwner) || hits(&a.hits) != 3 {
		t.Errorf("without an owner: %v", err)
	}
	if err := check(right, ""); !errors.Is(err, bad) || hits(&a.hits) != 0 {
		t.Errorf("without a key: %v", err)
	}
	guarded, err := routegrpc.NewPeers(nil, plaintext())
	if err != nil {
		t.Fatal(err)
	}
	defer guarded.Close()
	if err := check(dial(mapped(t, "a", a.address, lease.Token()), guarded), "s-0000"); !errors.Is(err, core.ErrInvalid) || hits(&a.hits) != 0 {
		t.Errorf("an address that is not allowed: %v", err)
	}
	out := metadata.AppendToOutgoingContext(ctx, "shard", "s-0000")
	for name, conn := range map[string]grpc.ClientConnInterface{"by the map": right, "by a map that is out of date": stale} {
		s, err := conn.NewStream(out, &grpc.StreamDesc{StreamName: "Both", ServerStreams: true, ClientStreams: true}, "/test.Echo/Both")
		if err != nil {
			t.Errorf("a stream %s: %v", name, err)
			continue
		}
		var reply wrapperspb.StringValue
		if err := errors.Join(s.SendMsg(wrapperspb.String("hello")), s.RecvMsg(&reply), s.CloseSend()); err != nil || !strings.HasPrefix(reply.Value, "a hello") {
			t.Errorf("a stream %s: %q %v", name, reply.Value, err)
		}
		if err := s.RecvMsg(&reply); !errors.Is(err, io.EOF) {
			t.Errorf("a stream %s ends with %v", name, err)
		}
	}
	if _, err := routegrpc.NewConn(nil, nil, nil, nil); !errors.Is(err, core.ErrInvalid) {
		t.Error(err)
	}
}

// TestConnLeavesAStaleMember: if a member's map names an owner that is unreachable or refuses the
// call, the client requests the map from another member.
func TestConnLeavesAStaleMember(t *testing.T) {
	store := memory.New()
	a, other := start(t, store, "a", nil), start(t, memory.New(), "b", nil)
	lease := a.own("s-0000")
	for name, stale := range map[string]string{"cannot be connected to": "127.0.0.1:1", "refuses": other.address} {
		open := new(atomic.Bool)
		c := reading(t, mapping(t, nil, "b", stale, lease.Token()-1), mapping(t, open, "a", a.address, lease.Token()))
		open.Store(true)
		conn, err := routegrpc.NewConn(c, newPeers(t), func(context.Context, string, any) (string, error) { return "key", nil },
			&routegrpc.ClientOptions{Wait: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		await(t, "a call at the owner, where another member "+name, func() bool {
			_, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "s-0000"})
			return err == nil
		})
	}
}
