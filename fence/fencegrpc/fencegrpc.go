// Package fencegrpc transmits fences over gRPC. The client's interceptors send the fence in the
// call's context (fence.NewContext) as metadata. The server's interceptors pass a call to its
// handler only if the server's Mark admits the fence.
//
//	conn, err := grpc.NewClient(addr,
//		grpc.WithUnaryInterceptor(fencegrpc.UnaryClient()),
//		grpc.WithStreamInterceptor(fencegrpc.StreamClient()))
//
//	in := fencegrpc.NewServer(mark, nil)
//	grpc.NewServer(grpc.UnaryInterceptor(in.Unary), grpc.StreamInterceptor(in.Stream))
//
// A refused call ends with FailedPrecondition. The status details contain an ErrorInfo, in the
// domain tenure.fence, that describes the refusal. [Error] converts this ErrorInfo back into a
// *fence.RefusedError. Other calls that do not pass end with one of these codes:
//
//   - PermissionDenied and a *fence.ForeignError, if leases of the shard may not write to the
//     resource
//   - InvalidArgument, if the call has no fence
//   - Unavailable, if the mark could not be checked
//
// The server checks a stream's fence again for each message that it receives. A message's effect
// lasts from the message's receipt until the handler asks for the next message or returns. Messages
// that the handler sends during an effect pass without a check, because the effect was admitted.
// The server also checks messages that the handler sends outside an effect. If the lease was
// superseded, the stream ends with Aborted. A refusal concerns only one message, and earlier
// messages may have been applied. Therefore, a handler should acknowledge each message.
//
// If a higher token supersedes a call, the call's context ends. If the client of a stream does not
// read, a SendMsg then fails after one second. A handler that ignores the context and the failed
// SendMsg delays the higher token for up to fence.Options.Wait.
//
// A fence is a claim, not a credential. Any caller of the server can permanently raise a mark to
// any token, and thereby lock out the rightful owner. Authenticate callers before these
// interceptors run, and let the server choose the resource ([Options].Resource).
package fencegrpc

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/fence"
)

// Key is the metadata key of a fence. Its value is in the form that fence.Format returns.
const Key = "tenure-fence"

const (
	domain        = "tenure.fence"
	reasonRefused = "FENCE_REFUSED"
	reasonForeign = "FENCE_FOREIGN" // the resource belongs to another shard
)

// sendTime is how long a superseded stream may take to send its last effect's replies.
const sendTime = time.Second

// UnaryClient returns an interceptor that sends the fence in the call's context. If a call has no
// fence, the interceptor passes the call on unchanged.
func UnaryClient() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		return invoke(outgoing(ctx), method, req, reply, cc, opts...)
	}
}

// StreamClient is like UnaryClient, but for streams.
func StreamClient() grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer,
		opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return open(outgoing(ctx), desc, cc, method, opts...)
	}
}

func outgoing(ctx context.Context) context.Context {
	f, ok := fence.FromContext(ctx)
	if !ok {
		return ctx
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	md = md.Copy()
	md.Set(Key, fence.Format(f))
	return metadata.NewOutgoingContext(ctx, md)
}

// Options configure a Server. A nil *Options is valid.
type Options struct {
	// Resource returns the resource to which a call writes. The default is the shard of the call's
	// fence, which the caller chooses. Set Resource unless every caller may write to every shard.
	Resource func(ctx context.Context, method string, f driver.Fence) string
	// Unfenced, if not nil, reports whether calls to a method, such as a read, may pass without a
	// fence. Its argument is the method's full name. By default, every call needs a fence.
	Unfenced func(method string) bool
	// MayWrite, if not nil, checks each call in addition to the Mark's fence.Options.MayWrite. For
	// example, MayWrite can check the authenticated caller. If MayWrite returns false, the call
	// ends with PermissionDenied.
	MayWrite func(ctx context.Context, method string, f driver.Fence, resource string) bool
}

// Server provides a server's interceptors. A Server is safe for concurrent use.
type Server struct {
	mark *fence.Mark
	opts Options
}

// NewServer returns a Server that checks calls with a Mark. The caller still owns the Mark. The
// Server's interceptors do not authenticate callers, and any caller can raise a mark permanently.
// Therefore, put an authenticating interceptor in front of these interceptors, and set
// Options.Resource.
func NewServer(m *fence.Mark, o *Options) *Server {
	s := &Server{mark: m}
	if o != nil {
		s.opts = *o
	}
	return s
}

// Unary is a grpc.UnaryServerInterceptor that runs the handler in Mark.Do.
func (s *Server) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	f, resource, fenced, err := s.incoming(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if !fenced {
		return handler(ctx, req)
	}
	inside, leave, err := s.mark.Enter(ctx, resource, f)
	if err != nil {
		return nil, toStatus(err)
	}
	defer leave()
	return handler(fence.NewContext(inside, f), req)
}

// Stream is a grpc.StreamServerInterceptor.
func (s *Server) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	f, resource, fenced, err := s.incoming(ss.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	if !fenced {
		return handler(srv, ss)
	}
	if err := s.mark.Admit(ss.Context(), resource, f); err != nil {
		return toStatus(err)
	}
	ctx, cancel := context.WithCancelCause(fence.NewContext(ss.Context(), f))
	defer cancel(nil)
	st := &stream{ServerStream: ss, ctx: ctx, cancel: cancel, mark: s.mark, resource: resource, fence: f}
	defer st.leave()
	return handler(srv, st)
}

func (s *Server) incoming(
	ctx context.Context, method string,
) (f driver.Fence, resource string, fenced bool, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(Key)
	if len(values) == 0 {
		if s.opts.Unfenced != nil && s.opts.Unfenced(method) {
			return f, "", false, nil
		}
		return f, "", false, status.Errorf(codes.InvalidArgument,
			"the call has no fence: send the lease's fence in the metadata %s", Key)
	}
	f, err = fence.Parse(values[0])
	if err == nil && len(values) > 1 {
		err = errors.New("tenure: more than one fence")
	}
	if err == nil {
		resource = string(f.Shard)
		if s.opts.Resource != nil {
			resource = s.opts.Resource(ctx, method, f)
		}
		err = fence.CheckResource(resource)
	}
	if err != nil {
		return f, "", false, status.Error(codes.InvalidArgument, err.Error())
	}
	if s.opts.MayWrite != nil && !s.opts.MayWrite(ctx, method, f, resource) {
		return f, "", false, toStatus(&fence.ForeignError{Resource: resource, Fence: f})
	}
	return f, resource, true, nil
}

// stream is a grpc.ServerStream that checks the fence for each message. As gRPC requires, one
// goroutine receives from a stream, and the same or another goroutine sends.
type stream struct {
	grpc.ServerStream
	ctx      context.Context
	cancel   context.CancelCauseFunc
	mark     *fence.Mark
	resource string
	fence    driver.Fence
	end      func() // ends the effect of the last message; nil outside an effect
	// Between effects, the pointer inside is nil.
	inside atomic.Pointer[context.Context]
	stuck  atomic.Bool // a SendMsg was abandoned
}

// Context returns the context that carries the fence. The context ends when a higher token is
// admitted during the effect of a message.
func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg ends the previous message's effect and admits the next message's effect.
func (s *stream) RecvMsg(m any) error {
	s.leave()
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	// With s.ctx instead, Enter would report a storage failure after a higher token has ended
	// s.ctx.
	inside, end, err := s.mark.Enter(s.ServerStream.Context(), s.resource, s.fence)
	if err != nil {
		return toStatus(err)
	}
	stop := context.AfterFunc(inside, func() { s.cancel(context.Cause(inside)) })
	s.end = func() {
		stop()
		end()
	}
	s.inside.Store(&inside)
	return nil
}

// SendMsg sends an admitted effect's messages even if the lease was superseded, because the caller
// would repeat an unacknowledged effect. Outside an effect, SendMsg refuses to send under a
// superseded lease. The error does not show whether earlier effects took place.
func (s *stream) SendMsg(m any) error {
	inside := s.inside.Load()
	if s.stuck.Load() {
		return errStuck()
	}
	if inside == nil {
		err := s.mark.Admit(s.ServerStream.Context(), s.resource, s.fence)
		switch {
		case errors.Is(err, driver.ErrFenced):
			return status.Error(codes.Aborted, "the lease was superseded; messages that were sent before may have "+
				"been applied")
		case err != nil:
			return status.Error(codes.Unavailable, "the fence could not be checked; messages that were sent before "+
				"may have been applied")
		}
	}
	if inside == nil {
		return s.ServerStream.SendMsg(m)
	}
	return s.sendInside(*inside, m)
}

// sendInside sends a message, but gives up if the client does not read within sendTime after the
// effect was superseded. gRPC has no deadline for this case. A goroutine that is still sending ends
// when the handler has returned, because the stream then ends.
func (s *stream) sendInside(inside context.Context, m any) error {
	sent := make(chan error, 1)
	go func() { sent <- s.ServerStream.SendMsg(m) }()
	select {
	case err := <-sent:
		return err
	case <-inside.Done():
	}
	select {
	case err := <-sent:
		return err
	case <-time.After(sendTime):
		s.stuck.Store(true)
		return errStuck()
	}
}

func errStuck() error {
	return status.Error(codes.Aborted, "the lease was superseded, and the client does not read; messages that were "+
		"sent before may have been applied")
}

func (s *stream) leave() {
	s.inside.Store(nil)
	if s.end != nil {
		s.end()
		s.end = nil
	}
}

func toStatus(err error) error {
	if e, ok := errors.AsType[*fence.ForeignError](err); ok {
		return withDetails(codes.PermissionDenied, e, reasonForeign,
			map[string]string{"resource": e.Resource, "fence": fence.Format(e.Fence)})
	}
	if errors.Is(err, fence.ErrBusy) {
		return status.Error(codes.Unavailable, fence.ErrBusy.Error()+"; its message was not applied; try again")
	}
	e, ok := errors.AsType[*fence.RefusedError](err)
	if !ok {
		// A storage's error may contain host and user names, so clients do not receive it.
		return status.Error(codes.Unavailable, "the fence could not be checked; its message was not applied; try again")
	}
	return withDetails(codes.FailedPrecondition, e, reasonRefused, map[string]string{
		"resource": e.Resource, "fence": fence.Format(e.Fence),
		"current_shard": string(e.Current.Shard), "current_holder": string(e.Current.Session),
		"current_token": strconv.FormatInt(int64(e.Current.Token), 10),
	})
}

func withDetails(code codes.Code, err error, reason string, metadata map[string]string) error {
	st, detailErr := status.New(code, err.Error()).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: domain,
		Metadata: metadata})
	if detailErr != nil {
		return status.Error(code, err.Error())
	}
	return st.Err()
}

// Error returns the *fence.RefusedError or *fence.ForeignError that a call's error contains. If err
// contains neither, Error returns err. On a stream, the error concerns only the refused message.
func Error(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, d := range st.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != domain {
			continue
		}
		md := info.GetMetadata()
		f, parseErr := fence.Parse(md["fence"])
		if parseErr != nil || fence.CheckResource(md["resource"]) != nil {
			return err
		}
		switch {
		case st.Code() == codes.PermissionDenied && info.GetReason() == reasonForeign:
			return &fence.ForeignError{Resource: md["resource"], Fence: f}
		case st.Code() != codes.FailedPrecondition || info.GetReason() != reasonRefused:
			return err
		}
		token, parseErr := strconv.ParseInt(md["current_token"], 10, 64)
		if parseErr != nil {
			return err
		}
		current := driver.Fence{Shard: driver.ShardID(md["current_shard"]),
			Session: driver.SessionID(md["current_holder"]), Token: driver.Token(token)}
		if driver.CheckFence(current) != nil {
			return err
		}
		return &fence.RefusedError{Resource: md["resource"], Fence: f, Current: current}
	}
	return err
}
