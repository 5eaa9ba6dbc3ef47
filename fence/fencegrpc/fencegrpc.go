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
// [Error] turns back into a *fence.RefusedError; one under the lease of a shard that may
// not write to the resource with PermissionDenied and a *fence.ForeignError; one without
// a fence with InvalidArgument; one whose mark could not be checked with Unavailable.
//
// A stream is checked again with each message that it receives: the effect of a
// message lasts from its receipt until the handler asks for the next one or
// returns. Messages that the handler sends meanwhile pass, since the effect was
// admitted. At other times they are checked too, and end the stream with Aborted if
// the lease was superseded. A refusal is of one message: it says nothing about
// those before, which may have been applied, so a handler acknowledges each one.
//
// A call that a higher token supersedes is ended: its context ends, and, of a stream, a
// SendMsg that has waited for a second for its client fails. A handler that waits for
// neither keeps the higher token waiting for up to fence.Options.Wait.
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
	"time"

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

// Domain and reasons of the ErrorInfo that a refused call's status carries.
const (
	Domain        = "tenure.fence"
	Reason        = "FENCE_REFUSED"
	ReasonForeign = "FENCE_FOREIGN" // another shard's resource
)

// sendTime is the time that a superseded stream has to send the replies of its last effect.
const sendTime = time.Second

// UnaryClient sends the fence of the context; a call without one passes unchanged.
func UnaryClient() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		return invoke(outgoing(ctx), method, req, reply, cc, opts...)
	}
}

// StreamClient is UnaryClient for streams.
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

// Options of a Server. Nil works.
type Options struct {
	// Resource names the resource that a call writes to. Default: the shard of its
	// fence, which the caller chooses: set it unless every caller may write to
	// every shard.
	Resource func(ctx context.Context, method string, f driver.Fence) string
	// Unfenced, if not nil, lets a call without a fence pass to whose full method it
	// answers true, such as a read. Default: none passes.
	Unfenced func(method string) bool
	// MayWrite, if not nil, has to allow a call beside the Mark's own: for instance by
	// whom the caller was authenticated as. Others end with PermissionDenied.
	MayWrite func(ctx context.Context, method string, f driver.Fence, resource string) bool
}

// Server has the interceptors of a server. Safe for concurrent use.
type Server struct {
	mark *fence.Mark
	opts Options
}

// NewServer returns interceptors over a Mark, which stays the caller's. They do not
// authenticate, and a caller can raise a mark for good: put an authenticating
// interceptor before them, and set Options.Resource.
func NewServer(m *fence.Mark, o *Options) *Server {
	s := &Server{mark: m}
	if o != nil {
		s.opts = *o
	}
	return s
}

// Unary is a grpc.UnaryServerInterceptor. The handler runs in Mark.Do.
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

// stream is used by its handler as gRPC demands: one goroutine receives, and one
// sends, which may be another.
type stream struct {
	grpc.ServerStream
	ctx      context.Context
	cancel   context.CancelCauseFunc
	mark     *fence.Mark
	resource string
	fence    driver.Fence
	end      func() // leaves the effect of the last message; nil outside of one
	// inside is the context of the effect that is under way, nil outside of one.
	inside atomic.Pointer[context.Context]
	stuck  atomic.Bool // a SendMsg was given up
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
	s.inside.Store(&inside)
	return nil
}

// SendMsg sends the messages of an admitted effect: without its acknowledgement the
// caller would repeat it. At other times it refuses to send under a superseded
// lease, and says nothing about earlier effects.
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

// sendInside does not wait for a client that does not read for longer than sendTime
// after the effect was superseded. gRPC offers no deadline for that: the goroutine that
// is left ends with the stream, as soon as the handler has returned.
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
		return withDetails(codes.PermissionDenied, e, ReasonForeign,
			map[string]string{"resource": e.Resource, "fence": fence.Format(e.Fence)})
	}
	if errors.Is(err, fence.ErrBusy) {
		return status.Error(codes.Unavailable, fence.ErrBusy.Error()+"; its message was not applied; try again")
	}
	e, ok := errors.AsType[*fence.RefusedError](err)
	if !ok {
		// A storage's error may name hosts and users: it is not for clients.
		return status.Error(codes.Unavailable, "the fence could not be checked; its message was not applied; try again")
	}
	return withDetails(codes.FailedPrecondition, e, Reason, map[string]string{
		"resource": e.Resource, "fence": fence.Format(e.Fence),
		"current_shard": string(e.Current.Shard), "current_holder": string(e.Current.Session),
		"current_token": strconv.FormatInt(int64(e.Current.Token), 10),
	})
}

func withDetails(code codes.Code, err error, reason string, metadata map[string]string) error {
	st, detailErr := status.New(code, err.Error()).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: Domain,
		Metadata: metadata})
	if detailErr != nil {
		return status.Error(code, err.Error())
	}
	return st.Err()
}

// Error returns the *fence.RefusedError or *fence.ForeignError that a call's error carries, or
// else err. On a stream it is about the message that was refused, and not about those before.
func Error(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, d := range st.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != Domain {
			continue
		}
		md := info.GetMetadata()
		f, parseErr := fence.Parse(md["fence"])
		if parseErr != nil || fence.CheckResource(md["resource"]) != nil {
			return err
		}
		switch {
		case st.Code() == codes.PermissionDenied && info.GetReason() == ReasonForeign:
			return &fence.ForeignError{Resource: md["resource"], Fence: f}
		case st.Code() != codes.FailedPrecondition || info.GetReason() != Reason:
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
