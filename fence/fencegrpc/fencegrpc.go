// Package fencegrpc carries fences through gRPC: a client's interceptors send the
// fence of the call's context (fence.NewContext) as metadata, and a server's let a
// call pass only if its Mark admits it.
//
//	conn, err := grpc.NewClient(addr,
//		grpc.WithUnaryInterceptor(fencegrpc.UnaryClient()),
//		grpc.WithStreamInterceptor(fencegrpc.StreamClient()))
//
//	in := fencegrpc.NewServer(mark, nil)
//	grpc.NewServer(grpc.UnaryInterceptor(in.Unary), grpc.StreamInterceptor(in.Stream))
//
// A refused call ends with FailedPrecondition and the details of the refusal, which
// [Error] turns back into a *fence.RefusedError; one without a fence with
// InvalidArgument; one whose mark could not be checked with Unavailable.
//
// A stream is checked again with each message that it receives: the effect of a
// message lasts from its receipt until the handler asks for the next one or
// returns. What the handler sends meanwhile is sent, since the effect was admitted.
// What it sends at other times is checked too, and ends the stream with Aborted if
// the lease was superseded. A refusal is of one message: it says nothing of those
// before, which may have been applied, so a handler acknowledges each one.
//
// A fence is a claim, and no credential. Whoever may call the server can raise a
// mark to any token, for good, and so lock out the rightful owner: authenticate
// callers before these interceptors run, and name the resource on the server's side
// ([Options].Resource).
package fencegrpc

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/fence"
)

// Key is the metadata that carries a fence, in the form of fence.Format.
const Key = "tenure-fence"

// Domain and reason of the ErrorInfo that a refused call's status carries.
const (
	Domain = "tenure.fence"
	Reason = "FENCE_REFUSED"
)

// UnaryClient sends the fence of the context; a call without one passes unchanged.
func UnaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoke(outgoing(ctx), method, req, reply, cc, opts...)
	}
}

// StreamClient is UnaryClient for streams.
func StreamClient() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
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

// Options of a Server. Nil works.
type Options struct {
	// Resource names what a call writes to. Default: the shard of its fence, which
	// the caller chooses: set it unless every caller may write to every shard.
	Resource func(ctx context.Context, method string, f driver.Fence) string
	// Unfenced, if not nil, lets a call without a fence pass to whose full method it
	// answers true, such as a read. Default: none passes.
	Unfenced func(method string) bool
}

// Server has the interceptors of a server. Safe for concurrent use.
type Server struct {
	mark *fence.Mark
	opts Options
}

// NewServer returns interceptors over a Mark, which stays the caller's. They do not
// authenticate, and a caller can raise a mark for good: put what does before them,
// and set Options.Resource.
func NewServer(m *fence.Mark, o *Options) *Server {
	s := &Server{mark: m}
	if o != nil {
		s.opts = *o
	}
	return s
}

// Unary is a grpc.UnaryServerInterceptor. The handler runs in Mark.Do.
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
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

func (s *Server) incoming(ctx context.Context, method string) (f driver.Fence, resource string, fenced bool, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(Key)
	if len(values) == 0 {
		if s.opts.Unfenced != nil && s.opts.Unfenced(method) {
			return f, "", false, nil
		}
		return f, "", false, status.Errorf(codes.InvalidArgument, "the call has no fence: send the lease's fence in the metadata %s", Key)
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
	return f, resource, true, nil
}

// stream is used by its handler as gRPC demands: one goroutine receives, and one
// sends, which may be another.
type stream struct {
	grpc.ServerStream
	ctx      context.Context
	cancel   context.CancelCauseFunc
	mark     *fence.Mark
	resource string
	fence    driver.Fence
	end      func()      // leaves the effect of the last message; nil outside of one
	inside   atomic.Bool // an effect is under way
}

// Context carries the fence, and ends when a higher token is admitted while a
// message has its effect.
func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg ends the effect of the last message, and admits the next one's.
func (s *stream) RecvMsg(m any) error {
	s.leave()
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	// Not with s.ctx, which a higher token has ended: it would be the storage's
	// failure then.
	inside, end, err := s.mark.Enter(s.ServerStream.Context(), s.resource, s.fence)
	if err != nil {
		return toStatus(err)
	}
	stop := context.AfterFunc(inside, func() { s.cancel(context.Cause(inside)) })
	s.end = func() {
		stop()
		end()
	}
	s.inside.Store(true)
	return nil
}

// SendMsg sends what belongs to an effect, which was admitted: to refuse its
// acknowledgement would have the caller repeat it. At other times it refuses to
// speak under a superseded lease, without a word of what was applied before.
func (s *stream) SendMsg(m any) error {
	if !s.inside.Load() {
		err := s.mark.Admit(s.ServerStream.Context(), s.resource, s.fence)
		switch {
		case errors.Is(err, driver.ErrFenced):
			return status.Error(codes.Aborted, "the lease was superseded; messages that were sent before may have been applied")
		case err != nil:
			return status.Error(codes.Unavailable, "the fence could not be checked; messages that were sent before may have been applied")
		}
	}
	return s.ServerStream.SendMsg(m)
}

func (s *stream) leave() {
	s.inside.Store(false)
	if s.end != nil {
		s.end()
		s.end = nil
	}
}

func toStatus(err error) error {
	e, ok := errors.AsType[*fence.RefusedError](err)
	if !ok {
		// A storage's error may name hosts and users: it is not for clients.
		return status.Error(codes.Unavailable, "the fence could not be checked; what it came with was not applied; try again")
	}
	st, detailErr := status.New(codes.FailedPrecondition, e.Error()).WithDetails(&errdetails.ErrorInfo{
		Reason: Reason, Domain: Domain,
		Metadata: map[string]string{
			"resource": e.Resource, "fence": fence.Format(e.Fence),
			"current_shard": string(e.Current.Shard), "current_holder": string(e.Current.Session),
			"current_token": strconv.FormatInt(int64(e.Current.Token), 10),
		},
	})
	if detailErr != nil {
		return status.Error(codes.FailedPrecondition, e.Error())
	}
	return st.Err()
}

// Error returns the *fence.RefusedError that a call's error tells, or else err. On a
// stream it is about the message that was refused, and not about those before.
func Error(err error) error {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.FailedPrecondition {
		return err
	}
	for _, d := range st.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != Domain || info.GetReason() != Reason {
			continue
		}
		md := info.GetMetadata()
		f, parseErr := fence.Parse(md["fence"])
		if parseErr != nil {
			return err
		}
		token, parseErr := strconv.ParseInt(md["current_token"], 10, 64)
		if parseErr != nil {
			return err
		}
		return &fence.RefusedError{Resource: md["resource"], Fence: f, Current: fence.Holder{
			Shard: driver.ShardID(md["current_shard"]), Session: driver.SessionID(md["current_holder"]), Token: driver.Token(token),
		}}
	}
	return err
}
