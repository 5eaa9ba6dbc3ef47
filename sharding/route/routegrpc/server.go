package routegrpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
)

const defaultAddressKey = "grpc"

// This metadata key marks a call that a member has forwarded.
const forwardedKey = "tenure-forwarded"

// This metadata key marks a stream whose client waits until the stream has begun. For such a
// stream, Server.Stream sends the header before the handler runs, so the handler cannot add to the
// header.
const begunKey = "tenure-begun"

// Options configure a Server.
type Options struct {
	// Shard determines a call's shard from its full method and message. If Shard returns an error
	// that matches sharding.ErrNoOwner, the answer is Unavailable. For any other error, the answer
	// is InvalidArgument with the error's text. Shard is required.
	Shard func(ctx context.Context, method string, req any) (string, error)
	// StreamShard determines a stream's shard before any message is read, from the full method and,
	// for example, the metadata in the context. An error has the same effect as one from Shard.
	// Stream requires StreamShard.
	StreamShard func(ctx context.Context, method string) (string, error)
	// Unrouted reports whether this process serves a method without routing, such as a health
	// check. Its argument is the method's full name. Nil, the default, routes all calls.
	Unrouted func(method string) bool
	// Peers forwards calls for other members' shards. A forwarded method must use Protocol Buffers,
	// and its generated code must be part of this program. By default, the Server does not forward
	// calls, and answers with the owner instead. The caller still owns the Peers.
	Peers *Peers
	// AddressKey is the metadata key of a member's address. The default is "grpc".
	AddressKey string
}

// Server provides interceptors for a gRPC server. A Server is safe for concurrent use.
type Server struct {
	e *core.Elector
	r *sharding.Router
	o Options
}

// NewServer returns a Server. The Router must use the same Elector. The caller still owns the
// Elector and the Router. The error matches core.ErrInvalid.
func NewServer(e *core.Elector, r *sharding.Router, o *Options) (*Server, error) {
	if e == nil || r == nil || o == nil || o.Shard == nil {
		return nil, fmt.Errorf("tenure: %w: routing needs an elector, a router and Options.Shard", core.ErrInvalid)
	}
	s := &Server{e: e, r: r, o: *o}
	if s.o.AddressKey == "" {
		s.o.AddressKey = defaultAddressKey
	}
	return s, nil
}

// Unary is a grpc.UnaryServerInterceptor. For a call that is served here, the context also ends
// when the lease ends, with the same cause.
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if s.o.Unrouted != nil && s.o.Unrouted(info.FullMethod) {
		return next(ctx, req)
	}
	shard, err := s.o.Shard(ctx, info.FullMethod, req)
	if err := named(shard, err); err != nil {
		return nil, err
	}
	lease, e := s.owner(shard)
	if lease != nil {
		ctx, done := route.NewContext(ctx, lease)
		defer done()
		return next(ctx, req)
	}
	if e.Node == "" {
		return nil, e.status()
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if s.o.Peers == nil || e.Address == "" || len(md.Get(forwardedKey)) > 0 {
		return nil, e.status()
	}
	return s.forward(ctx, req, info.FullMethod, md, e)
}

// Stream is a grpc.StreamServerInterceptor. Stream routes a stream before its first message,
// according to Options.StreamShard. Stream never forwards a stream, and answers with the owner
// instead. For a stream that is served here, the context also ends when the lease ends, with the
// same cause.
func (s *Server) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if s.o.Unrouted != nil && s.o.Unrouted(info.FullMethod) {
		return next(srv, stream)
	}
	if s.o.StreamShard == nil {
		return status.Error(codes.Internal, "routegrpc: Stream needs Options.StreamShard")
	}
	shard, err := s.o.StreamShard(stream.Context(), info.FullMethod)
	if err := named(shard, err); err != nil {
		return err
	}
	lease, e := s.owner(shard)
	if lease == nil {
		return e.status()
	}
	ctx, done := route.NewContext(stream.Context(), lease)
	defer done()
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get(begunKey)) > 0 {
		if err := stream.SendHeader(metadata.MD{}); err != nil {
			return err
		}
	}
	return next(srv, &served{stream, ctx})
}

type served struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *served) Context() context.Context { return s.ctx }

// If the call names a shard, the result is nil.
func named(shard string, err error) error {
	if err == nil {
		err = core.CheckShard(shard)
	}
	switch {
	case errors.Is(err, sharding.ErrNoOwner): // the router does not know the map of ranges yet
		return status.Error(codes.Unavailable, err.Error())
	case err != nil:
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return nil
}

// If another member serves the shard, the error names the owner.
func (s *Server) owner(shard string) (*core.Lease, *OwnerError) {
	if lease := s.e.Lease(shard); lease != nil {
		return lease, nil
	}
	owner, err := s.r.Owner(shard)
	if err != nil || owner.Self { // this process owns the shard but does not serve it, because it is starting or stopping
		return nil, &OwnerError{Shard: shard}
	}
	e := &OwnerError{Shard: shard, Node: owner.Node, Address: owner.Meta[s.o.AddressKey], Token: owner.Token}
	if checkAddress(e.Address) != nil {
		e.Address = ""
	}
	return nil, e
}

func (s *Server) forward(ctx context.Context, req any, method string, md metadata.MD, e *OwnerError) (any, error) {
	reply, err := replyOf(method)
	if err != nil {
		return nil, e.status() // the caller may call the owner directly
	}
	conn, done, err := s.o.Peers.take(forwarding, e.Address)
	if err != nil {
		return nil, e.status()
	}
	defer done()
	out := metadata.MD{}
	for k, v := range md {
		if !strings.HasPrefix(k, ":") && !strings.HasPrefix(k, "grpc-") && k != "content-type" && k != "user-agent" {
			out[k] = v
		}
	}
	out.Set(forwardedKey, s.e.View().Node)
	if err := conn.Invoke(metadata.NewOutgoingContext(ctx, out), method, req, reply); err != nil {
		return nil, err
	}
	return reply, nil
}

func replyOf(method string) (proto.Message, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, err
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, fmt.Errorf("tenure: %w: %.200q is no method", core.ErrUnsupported, name)
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}
