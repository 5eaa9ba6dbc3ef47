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

// DefaultAddressKey is the key of a member's metadata that holds its address.
const DefaultAddressKey = "grpc"

// ForwardedKey is the metadata of a call that a member has forwarded.
const ForwardedKey = "tenure-forwarded"

// BegunKey is the metadata of a stream whose client waits until it has begun. Stream then sends the
// header before the handler runs, and the handler cannot add to it.
const BegunKey = "tenure-begun"

// Options are the options of a Server.
type Options struct {
	// Shard returns the shard of a call from its full method and message. If it returns an
	// error, the answer is InvalidArgument with the error's text, or Unavailable if the error
	// matches sharding.ErrNoOwner. Required.
	Shard func(ctx context.Context, method string, req any) (string, error)
	// StreamShard returns the shard of a stream before any message is read, from its full
	// method and its context, such as its metadata. An error has the same effect as an error of
	// Shard. Required for Stream.
	StreamShard func(ctx context.Context, method string) (string, error)
	// Unrouted reports whether this process serves a full method in any case, such as a health
	// check. Nil, the default, routes all calls.
	Unrouted func(method string) bool
	// Peers forwards a call for another member's shard, if it is of a Protocol Buffers method whose
	// generated code is part of this program. By default, the Server answers with the owner. The
	// Peers stay the caller's.
	Peers *Peers
	// AddressKey is the key of a member's metadata that holds its address. Default
	// DefaultAddressKey.
	AddressKey string
}

// Server provides the interceptors of a gRPC server. It is safe for concurrent use.
type Server struct {
	e *core.Elector
	r *sharding.Router
	o Options
}

// NewServer returns a Server. The Router must be on the same Elector. Both stay the caller's.
// The error matches core.ErrInvalid.
func NewServer(e *core.Elector, r *sharding.Router, o *Options) (*Server, error) {
	if e == nil || r == nil || o == nil || o.Shard == nil {
		return nil, fmt.Errorf("tenure: %w: routing needs an elector, a router and Options.Shard", core.ErrInvalid)
	}
	s := &Server{e: e, r: r, o: *o}
	if s.o.AddressKey == "" {
		s.o.AddressKey = DefaultAddressKey
	}
	return s, nil
}

// Unary is a grpc.UnaryServerInterceptor. The context of a call that is served here also ends with
// the lease, with the same cause.
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
	if s.o.Peers == nil || e.Address == "" || len(md.Get(ForwardedKey)) > 0 {
		return nil, e.status()
	}
	return s.forward(ctx, req, info.FullMethod, md, e)
}

// Stream is a grpc.StreamServerInterceptor. It routes a stream before its first message, as
// Options.StreamShard says. It never forwards a stream, but answers with the owner. The context
// of a stream that is served here also ends with the lease, with the same cause.
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
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get(BegunKey)) > 0 {
		if err := stream.SendHeader(metadata.MD{}); err != nil {
			return err
		}
	}
	return next(srv, &served{stream, ctx})
}

// served is a stream with the context of a lease.
type served struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *served) Context() context.Context { return s.ctx }

// named returns the answer to a call that names no shard, or nil if it names one.
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

// owner returns the lease of a shard that is served here, or the other owner as an error.
func (s *Server) owner(shard string) (*core.Lease, *OwnerError) {
	if lease := s.e.Lease(shard); lease != nil {
		return lease, nil
	}
	owner, err := s.r.Owner(shard)
	if err != nil || owner.Self { // this process owns it and does not serve it: it is starting or stopping
		return nil, &OwnerError{Shard: shard}
	}
	e := &OwnerError{Shard: shard, Node: owner.Node, Address: owner.Meta[s.o.AddressKey], Token: owner.Token}
	if CheckAddress(e.Address) != nil {
		e.Address = ""
	}
	return nil, e
}

// forward makes the call at the owner, marked as forwarded.
func (s *Server) forward(ctx context.Context, req any, method string, md metadata.MD, e *OwnerError) (any, error) {
	reply, err := replyOf(method)
	if err != nil {
		return nil, e.status() // the caller may ask the owner itself
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
	out.Set(ForwardedKey, s.e.View().Node)
	if err := conn.Invoke(metadata.NewOutgoingContext(ctx, out), method, req, reply); err != nil {
		return nil, err
	}
	return reply, nil
}

// replyOf returns a new message of the method's result type.
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
