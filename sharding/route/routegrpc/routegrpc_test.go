package routegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
	"github.com/tenure-go/tenure/sharding/route/routegrpc"
)

type member struct {
	*core.Elector
	grpc_health_v1.UnimplementedHealthServer
	t       *testing.T
	address string
	hits    atomic.Int64 // calls that have reached it
	seen    atomic.Value // metadata of the last call that it served
}

func (m *member) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	m.seen.Store(md)
	if route.FromContext(ctx) == nil {
		return nil, status.Error(codes.Internal, "no lease")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func allowAll(string) bool { return true }

func plaintext() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }

func newPeers(t *testing.T) *routegrpc.Peers {
	t.Helper()
	p, err := routegrpc.NewPeers(allowAll, plaintext())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func start(t *testing.T, store *memory.Store, node string, peers *routegrpc.Peers) *member {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t: t, address: l.Addr().String()}
	b, err := memory.Open(t.Context(), store, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Elector, err = core.NewElector(b, &core.Options{Node: node, TTL: 5 * time.Second, LockDir: "none",
		Meta: map[string]string{"grpc": m.address}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := sharding.NewRouter(m.Elector, nil)
	if err != nil {
		t.Fatal(err)
	}
	in, err := routegrpc.NewServer(m.Elector, r, &routegrpc.Options{Peers: peers,
		Shard: func(_ context.Context, _ string, req any) (string, error) {
			return req.(*grpc_health_v1.HealthCheckRequest).Service, nil
		},
		StreamShard: func(ctx context.Context, _ string) (string, error) {
			return strings.Join(metadata.ValueFromIncomingContext(ctx, "shard"), ""), nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			m.hits.Add(1)
			return in.Unary(ctx, req, info, next)
		}), grpc.StreamInterceptor(
		func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			m.hits.Add(1)
			return in.Stream(srv, stream, info, next)
		}))
	grpc_health_v1.RegisterHealthServer(s, m)
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Echo", HandlerType: (*any)(nil), Streams: streams(m)}, m)
	served, ran := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { ran <- m.Run(ctx) }()
	t.Cleanup(func() {
		s.Stop()
		stop()
		if err := errors.Join(<-served, <-ran, b.Close()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// own makes the member own a shard, and waits until all members know this.
func (m *member) own(shard string, all ...*member) *core.Lease {
	m.t.Helper()
	err := m.Contend(func(ctx context.Context, _ *core.Lease) error {
		<-ctx.Done()
		return nil
	}, shard)
	if err != nil {
		m.t.Fatal(err)
	}
	await(m.t, "the lease of "+shard, func() bool { return m.Lease(shard) != nil })
	for _, x := range append(all, m) {
		x.knows(shard, m, m.address)
	}
	return m.Lease(shard)
}

func (m *member) knows(shard string, owner *member, address string) {
	m.t.Helper()
	session := owner.View().Session
	await(m.t, "news of the owner of "+shard, func() bool {
		v := m.View()
		o, _ := v.Owner(shard)
		x, _ := v.Member(session)
		return o.Session == session && x.Meta["grpc"] == address
	})
	time.Sleep(10 * time.Millisecond) // a Router's view may be 5 ms old
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ample.Wait(t, what+" did not come", cond)
}

func (m *member) check(shard string, client grpc.UnaryClientInterceptor, md ...string) error {
	m.t.Helper()
	o := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if client != nil {
		o = append(o, grpc.WithUnaryInterceptor(client))
	}
	conn, err := grpc.NewClient(m.address, o...)
	if err != nil {
		m.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(m.t.Context(), md...), ample.Time)
	defer cancel()
	r, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: shard})
	if err == nil && r.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		m.t.Errorf("the reply is %v", r)
	}
	return err
}

func TestServeForwardAnswer(t *testing.T) {
	store := memory.New()
	a, b := start(t, store, "a", nil), start(t, store, "b", newPeers(t))
	a.own("s", b)
	if err := a.check("s", nil); err != nil {
		t.Errorf("at the owner: %v", err)
	}
	if err := b.check("s", nil, "authorization", "mine"); err != nil {
		t.Errorf("forwarded: %v", err)
	}
	if md := a.seen.Load().(metadata.MD); fmt.Sprint(md.Get("authorization"), md.Get("tenure-forwarded")) != "[mine] [b]" {
		t.Errorf("the owner gets the metadata %v", md)
	}
	lease := b.own("t", a)
	var owner *routegrpc.OwnerError
	err := a.check("t", nil)
	if !errors.As(routegrpc.Error(err), &owner) || status.Code(err) != codes.FailedPrecondition ||
		*owner != (routegrpc.OwnerError{Shard: "t", Node: "b", Address: b.address, Token: lease.Token()}) {
		t.Errorf("answered %v, want b", err)
	}
	if err := a.check("nobody", nil); status.Code(err) != codes.Unavailable || !errors.Is(routegrpc.Error(err), sharding.ErrNoOwner) {
		t.Errorf("without an owner: %v", err)
	}
	if err := a.check("not a\nshard", nil); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no shard: %v", err)
	}
}

// A call is forwarded only once, even if two members publish each other's address.
func TestOneHop(t *testing.T) {
	store := memory.New()
	a, b := start(t, store, "a", newPeers(t)), start(t, store, "b", newPeers(t))
	a.own("s", b)
	if err := a.Update(t.Context(), func(s *core.MemberState) { s.Meta["grpc"] = b.address }); err != nil {
		t.Fatal(err)
	}
	b.knows("s", a, b.address)
	err := b.check("s", nil)
	if n := b.hits.Load(); status.Code(err) != codes.FailedPrecondition || n != 2 {
		t.Errorf("%v after %d hops, want one", err, n-1)
	}
	for _, address := range []string{"no address", "unix:/tmp/x:1", "h:0", "passthrough:///x:1"} {
		if err := a.Update(t.Context(), func(s *core.MemberState) { s.Meta["grpc"] = address }); err != nil {
			t.Fatal(err)
		}
		b.knows("s", a, address)
		var owner *routegrpc.OwnerError
		if err := b.check("s", nil); !errors.As(routegrpc.Error(err), &owner) || owner.Address != "" || owner.Node != "a" {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestClient(t *testing.T) {
	store := memory.New()
	a, b := start(t, store, "a", nil), start(t, store, "b", nil)
	a.own("s", b)
	client := routegrpc.UnaryClient(newPeers(t), &routegrpc.ClientOptions{Attempts: 3, Wait: 20 * time.Millisecond})
	if err := b.check("s", client); err != nil {
		t.Errorf("by the other member: %v", err)
	}
	before := b.hits.Load()
	if err := b.check("nobody", client); !errors.Is(routegrpc.Error(err), sharding.ErrNoOwner) || b.hits.Load()-before != 3 {
		t.Errorf("without an owner: %v after %d attempts, want 3", err, b.hits.Load()-before)
	}
	refusing, err := routegrpc.NewPeers(func(string) bool { return false }, plaintext())
	if err != nil {
		t.Fatal(err)
	}
	var owner *routegrpc.OwnerError
	if err := b.check("s", routegrpc.UnaryClient(refusing, nil)); !errors.As(routegrpc.Error(err), &owner) {
		t.Errorf("an address that may not be dialled: %v, want the owner", err)
	}
}

// Up to 256 connections are kept. The least recently used connection is closed first, but never one
// that is in use.
func TestPeersAreBounded(t *testing.T) {
	dialled := map[string]int{}
	p, err := routegrpc.NewPeers(func(a string) bool {
		dialled[a]++
		return true
	}, plaintext())
	if err != nil {
		t.Fatal(err)
	}
	address := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", 1000+i) }
	use := func(i int) func() {
		t.Helper()
		done, err := routegrpc.Take(p, address(i))
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	busy := use(0)
	for i := 1; i < 300; i++ {
		use(i)()
		use(1)()
	}
	if n := routegrpc.Kept(p); n != 256 {
		t.Errorf("%d connections are kept", n)
	}
	use(0)()
	busy()
	if dialled[address(0)] != 1 || dialled[address(1)] != 1 {
		t.Errorf("one in use was dialled %d times, one used often %d times", dialled[address(0)], dialled[address(1)])
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := routegrpc.Take(p, address(1)); !errors.Is(err, core.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	for _, a := range []string{"", "h", "h:", ":1", "h:x", "h/:1", strings.Repeat("h", 400) + ":1"} {
		if err := routegrpc.CheckAddress(a); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%q: %v", a, err)
		}
	}
}

func TestInvalid(t *testing.T) {
	if _, err := routegrpc.NewServer(nil, nil, nil); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("NewServer: %v", err)
	}
	if _, err := routegrpc.NewPeers(nil); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("NewPeers without credentials: %v", err)
	}
}
