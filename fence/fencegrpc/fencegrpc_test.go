package fencegrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencegrpc"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

func lease(session string, token driver.Token) driver.Fence {
	return driver.Fence{Shard: "ledger", Session: driver.SessionID(session), Token: token}
}

// setup serves /ledger/Write and the stream /ledger/Stream, which echo messages. After the answer
// to "wait", a stream waits until its context ends.
func setup(t *testing.T, mark *fence.Mark, o *fencegrpc.Options) *grpc.ClientConn {
	t.Helper()
	in := fencegrpc.NewServer(mark, o)
	s := grpc.NewServer(grpc.UnaryInterceptor(in.Unary), grpc.StreamInterceptor(in.Stream))
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "ledger", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Write",
			Handler: func(_ any, ctx context.Context, dec func(any) error, in grpc.UnaryServerInterceptor) (any, error) {
				req := &wrapperspb.StringValue{}
				if err := dec(req); err != nil {
					return nil, err
				}
				return in(ctx, req, &grpc.UnaryServerInfo{FullMethod: "/ledger/Write"},
					func(ctx context.Context, req any) (any, error) {
						f, _ := fence.FromContext(ctx)
						return wrapperspb.String(fence.Format(f)), nil
					})
			}}},
		Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, ClientStreams: true, Handler: echo}},
	}, nil)
	l := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:buffer", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithUnaryInterceptor(fencegrpc.UnaryClient()), grpc.WithStreamInterceptor(fencegrpc.StreamClient()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// echo answers "superseded" a further time while it keeps a higher token waiting. After the effect,
// it answers "last" a further time when there is no next message, and answers "flood" until it
// cannot send.
func echo(_ any, s grpc.ServerStream) error {
	for {
		m := &wrapperspb.StringValue{}
		if err := s.RecvMsg(m); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		switch m.GetValue() {
		case "superseded":
			if err := s.SendMsg(m); err != nil {
				return err
			}
			<-s.Context().Done()
		case "flood":
			for {
				if err := s.SendMsg(wrapperspb.String(strings.Repeat("x", 1<<10))); err != nil {
					return err
				}
			}
		case "last":
			if err := s.SendMsg(m); err != nil {
				return err
			}
			if err := s.RecvMsg(&wrapperspb.StringValue{}); err != io.EOF {
				return err
			}
		}
		if err := s.SendMsg(m); err != nil {
			return err
		}
		if m.GetValue() == "wait" {
			<-s.Context().Done()
			return context.Cause(s.Context())
		}
	}
}

func call(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	reply := &wrapperspb.StringValue{}
	err := conn.Invoke(ctx, "/ledger/Write", wrapperspb.String("x"), reply)
	return reply.GetValue(), err
}

func TestUnary(t *testing.T) {
	t.Parallel()
	mark := fence.NewMark(&fence.Memory{}, nil)
	conn := setup(t, mark, nil)
	with := func(f driver.Fence) context.Context { return fence.NewContext(t.Context(), f) }
	if got, err := call(with(lease("a", 5)), conn); err != nil || got != "ledger/a/5" {
		t.Fatalf("got %q, %v", got, err)
	}
	_, err := call(with(lease("b", 4)), conn)
	if status.Code(err) != codes.FailedPrecondition {
		t.Fatalf("got %v", err)
	}
	want := fence.RefusedError{Resource: "ledger", Fence: lease("b", 4), Current: lease("a", 5)}
	if e, ok := errors.AsType[*fence.RefusedError](fencegrpc.Error(err)); !ok || *e != want {
		t.Fatalf("got %v, want %v", fencegrpc.Error(err), &want)
	}
	if _, err := call(t.Context(), conn); status.Code(err) != codes.InvalidArgument || fencegrpc.Error(err) != err {
		t.Errorf("without a fence: %v", err)
	}
	for _, bad := range [][]string{{fencegrpc.Key, "nonsense"},
		{fencegrpc.Key, "ledger/a/5", fencegrpc.Key, "ledger/a/6"}} {
		if _, err := call(metadata.AppendToOutgoingContext(t.Context(), bad...),
			conn); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if mark.Refused() != 1 {
		t.Errorf("counted %d refusals, want 1", mark.Refused())
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	mark := fence.NewMark(&fence.Memory{},
		&fence.Options{MayWrite: func(_ driver.ShardID, resource string) bool { return resource == "/ledger/Write" }})
	conn := setup(t, mark, &fencegrpc.Options{
		MayWrite: func(_ context.Context, _ string, f driver.Fence, _ string) bool { return f.Session != "stranger" },
		Resource: func(_ context.Context, method string, _ driver.Fence) string { return method },
		Unfenced: func(method string) bool { return method == "/ledger/Write" },
	})
	if _, err := call(t.Context(), conn); err != nil {
		t.Errorf("an unfenced method: %v", err)
	}
	if _, err := call(fence.NewContext(t.Context(), lease("a", 5)), conn); err != nil {
		t.Fatal(err)
	}
	_, err := call(fence.NewContext(t.Context(), lease("stranger", 9)), conn)
	want := fence.ForeignError{Resource: "/ledger/Write", Fence: lease("stranger", 9)}
	if e, ok := errors.AsType[*fence.ForeignError](fencegrpc.Error(err)); status.Code(err) != codes.PermissionDenied ||
		!ok || *e != want {
		t.Errorf("a caller that MayWrite refuses: %v", err)
	}
	err = mark.Admit(t.Context(), "/ledger/Write", lease("b", 4))
	if e, ok := errors.AsType[*fence.RefusedError](err); !ok || e.Current != lease("a", 5) {
		t.Errorf("a lower token: %v", err)
	}
}

type failing struct{ fence.Memory }

func (*failing) Raise(context.Context, string, driver.Fence) (driver.Fence, error) {
	return driver.Fence{}, errors.New("dial marks.internal as user secret: refused")
}

func TestStorageFails(t *testing.T) {
	t.Parallel()
	conn := setup(t, fence.NewMark(&failing{}, nil), nil)
	_, err := call(fence.NewContext(t.Context(), lease("a", 5)), conn)
	if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

// TestStream: after a higher token was admitted, the next message of an open stream is refused. If
// an effect is in progress, the effect's context ends.
func TestStream(t *testing.T) {
	t.Parallel()
	mark := fence.NewMark(&fence.Memory{}, nil)
	conn := setup(t, mark, nil)
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	open := func(f driver.Fence) grpc.ClientStream {
		s, err := conn.NewStream(fence.NewContext(ctx, f), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
			"/ledger/Stream")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	send := func(s grpc.ClientStream, text string) {
		t.Helper()
		if err := s.SendMsg(wrapperspb.String(text)); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(s grpc.ClientStream) error { return s.RecvMsg(&wrapperspb.StringValue{}) }

	idle, busy := open(lease("a", 5)), open(lease("a", 5))
	send(idle, "x")
	if err := receive(idle); err != nil {
		t.Fatal(err)
	}
	send(busy, "wait")
	if err := receive(busy); err != nil {
		t.Fatal(err)
	}

	if err := mark.Seal(ctx, "ledger", lease("b", 6)); err != nil { // an idle stream delays no higher token
		t.Fatal(err)
	}
	send(idle, "y")
	if err := receive(idle); !errors.Is(fencegrpc.Error(err), driver.ErrFenced) {
		t.Errorf("a stream of a superseded lease: %v", err)
	}
	if err := receive(busy); err == nil {
		t.Error("the context of the effect under way did not end")
	}
	late := open(lease("a", 5))
	if err := receive(late); !errors.Is(fencegrpc.Error(err), driver.ErrFenced) {
		t.Errorf("a new stream of a superseded lease: %v", err)
	}
}

// TestStalledStream: a stream whose client does not read cannot keep a higher token
// waiting.
func TestStalledStream(t *testing.T) {
	t.Parallel()
	mark := fence.NewMark(&fence.Memory{}, &fence.Options{Wait: time.Hour})
	conn := setup(t, mark, nil)
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	s, err := conn.NewStream(fence.NewContext(ctx, lease("a", 10)),
		&grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/ledger/Stream")
	if err == nil {
		err = s.SendMsg(wrapperspb.String("flood"))
	}
	if err == nil {
		err = s.RecvMsg(&wrapperspb.StringValue{}) // the handler is inside its effect, and sends the next message
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := mark.Seal(ctx, "ledger", lease("b", 11)); err != nil {
		t.Fatal(err)
	}
	if got, err := call(fence.NewContext(ctx, lease("b", 11)), conn); err != nil || got != "ledger/b/11" {
		t.Errorf("got %q, %v", got, err)
	}
	for err == nil {
		err = s.RecvMsg(&wrapperspb.StringValue{})
	}
	if status.Code(err) != codes.Aborted {
		t.Errorf("the stream ended with %v", err)
	}
}

// TestAcknowledged: if the storage checks its context, the error for an applied message never
// states that the message was not applied.
func TestAcknowledged(t *testing.T) {
	t.Parallel()
	marks, err := fence.OpenFile(filepath.Join(t.TempDir(), "marks"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := marks.Close(); err != nil {
			t.Error(err)
		}
	})
	mark := fence.NewMark(marks, nil)
	conn := setup(t, mark, nil)
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	open := func(text string) grpc.ClientStream {
		s, err := conn.NewStream(fence.NewContext(ctx, lease("a", 5)),
			&grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/ledger/Stream")
		if err == nil {
			err = s.SendMsg(wrapperspb.String(text))
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	receive := func(s grpc.ClientStream) error { return s.RecvMsg(&wrapperspb.StringValue{}) }

	busy, last := open("superseded"), open("last")
	for _, s := range []grpc.ClientStream{busy, last} {
		if err := receive(s); err != nil {
			t.Fatal(err)
		}
	}
	sealed := make(chan error, 1)
	go func() { sealed <- mark.Seal(ctx, "ledger", lease("b", 6)) }()
	if err := receive(busy); err != nil {
		t.Errorf("the acknowledgement of an effect that was admitted: %v", err)
	}
	if err := busy.SendMsg(wrapperspb.String("y")); err != nil {
		t.Fatal(err)
	}
	if err := receive(busy); !errors.Is(fencegrpc.Error(err), driver.ErrFenced) {
		t.Errorf("the next message: %v", err)
	}
	if err := last.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := <-sealed; err != nil {
		t.Fatal(err)
	}
	err = receive(last)
	if status.Code(err) != codes.Aborted || errors.Is(fencegrpc.Error(err), driver.ErrFenced) {
		t.Errorf("an answer after the effect: %v", err)
	}
}
