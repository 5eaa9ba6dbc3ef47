package routegrpc_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
	"github.com/tenure-go/tenure/sharding/route/routegrpc"
)

// streams contains one stream of each kind. Each stream answers a message with the name of the
// member that served it. On "wait", the stream waits until its context ends, and reports the cause.
func streams(m *member) []grpc.StreamDesc {
	echo := func(_ any, s grpc.ServerStream) error {
		if route.FromContext(s.Context()) == nil {
			return status.Error(codes.Internal, "no lease")
		}
		for {
			var in wrapperspb.StringValue
			if err := s.RecvMsg(&in); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			if in.Value == "wait" {
				<-s.Context().Done()
				return status.Error(codes.Aborted, context.Cause(s.Context()).Error())
			}
			if err := s.SendMsg(wrapperspb.String(m.View().Node + " " + in.Value)); err != nil {
				return err
			}
		}
	}
	return []grpc.StreamDesc{
		{StreamName: "Server", Handler: echo, ServerStreams: true},
		{StreamName: "Client", Handler: echo, ClientStreams: true},
		{StreamName: "Both", Handler: echo, ServerStreams: true, ClientStreams: true},
	}
}

// open begins a stream at a member. The metadata name the shard.
func (m *member) open(d *grpc.StreamDesc, shard string, client grpc.StreamClientInterceptor) (grpc.ClientStream, error) {
	m.t.Helper()
	o := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if client != nil {
		o = append(o, grpc.WithStreamInterceptor(client))
	}
	conn, err := grpc.NewClient(m.address, o...)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(m.t.Context(), "shard", shard), ample.Time)
	m.t.Cleanup(cancel)
	return conn.NewStream(ctx, d, "/test.Echo/"+d.StreamName)
}

func echo(s grpc.ClientStream, text string) (string, error) {
	var reply wrapperspb.StringValue
	// If the server ended the stream, RecvMsg returns the error.
	if err := s.SendMsg(wrapperspb.String(text)); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if err := s.CloseSend(); err != nil {
		return "", err
	}
	err := s.RecvMsg(&reply)
	return reply.Value, err
}

func TestStreams(t *testing.T) {
	store := memory.New()
	a, b := start(t, store, "a", nil), start(t, store, "b", nil)
	lease := a.own("s", b)
	client := routegrpc.StreamClient(newPeers(t), &routegrpc.ClientOptions{Attempts: 3, Wait: 20 * time.Millisecond})
	kinds := streams(a)
	for i := range kinds {
		d := &kinds[i]
		for what, c := range map[string]grpc.StreamClientInterceptor{"plain": nil, "following": client} {
			s, err := a.open(d, "s", c)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := echo(s, "x"); got != "a x" || err != nil {
				t.Errorf("%s, %s, at the owner: %q, %v", d.StreamName, what, got, err)
			}
		}
		s, err := b.open(d, "s", client)
		if err != nil {
			t.Fatalf("%s by the other member: %v", d.StreamName, err)
		}
		if got, err := echo(s, "x"); got != "a x" || err != nil {
			t.Errorf("%s by the other member: %q, %v", d.StreamName, got, err)
		}
		if s, err = b.open(d, "s", nil); err != nil {
			t.Fatal(err)
		}
		_, err = echo(s, "x")
		var owner *routegrpc.OwnerError
		if !errors.As(routegrpc.Error(err), &owner) ||
			*owner != (routegrpc.OwnerError{Shard: "s", Node: "a", Address: a.address, Token: lease.Token()}) {
			t.Errorf("%s: answered %v, want a", d.StreamName, err)
		}
		before := b.hits.Load()
		if _, err := b.open(d, "nobody", client); !errors.Is(routegrpc.Error(err), sharding.ErrNoOwner) || b.hits.Load()-before != 3 {
			t.Errorf("%s without an owner: %v after %d attempts, want 3", d.StreamName, err, b.hits.Load()-before)
		}
		if _, err := b.open(d, "a/b", client); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s of no shard: %v", d.StreamName, err)
		}
	}

	// A stream that has begun ends with its lease, and the caller may begin it again.
	both := &kinds[2]
	s, err := b.open(both, "s", client)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendMsg(wrapperspb.String("wait")); err != nil {
		t.Fatal(err)
	}
	if err := a.Withdraw(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	var none wrapperspb.StringValue
	if err := s.RecvMsg(&none); status.Code(err) != codes.Aborted {
		t.Errorf("after its lease's end: %v, want that the handler's context ended", err)
	}
}
