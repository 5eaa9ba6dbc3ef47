// Package routegrpc routes each gRPC call to the owner of the call's shard, as package route does
// for HTTP requests.
//
//	in, err := routegrpc.NewServer(elector, router, &routegrpc.Options{
//		Shard: func(_ context.Context, method string, req any) (string, error) {
//			return keyspace.Shard(req.(*pb.Order).Id), nil
//		},
//		Peers: peers, // to forward; otherwise calls are answered with the owner
//	})
//	grpc.NewServer(grpc.UnaryInterceptor(in.Unary), grpc.StreamInterceptor(in.Stream))
//
//	conn, err := grpc.NewClient(addr, grpc.WithUnaryInterceptor(routegrpc.UnaryClient(peers, nil)))
//
// A member publishes its address, which is a host and a port, in its metadata under the key "grpc".
// The function route.FromContext returns the lease under which a call is served.
//
// A forwarded call has a mark in its metadata and is not forwarded again (one hop). If a call is
// neither served nor forwarded, its status is:
//
//   - FailedPrecondition, if another member owns the shard
//   - Unavailable, if the shard has no owner
//   - InvalidArgument, if the call names no shard
//
// In all three cases, the call was not carried out. In the first two cases, the status details
// contain an ErrorInfo, in the domain tenure.route, with the shard and its owner. [Error] converts
// this ErrorInfo into an *OwnerError. A forwarded call ends with the owner's status. If the owner's
// answer was lost, the forwarded call ends with Unavailable without an ErrorInfo, and the owner may
// have served the call.
//
// # What it does not do
//
// A Server never forwards a stream, and answers with the owner instead. See [Server.Stream] and
// [StreamClient]. A stream that has begun ends when the lease ends, and does not move to a new
// owner. The package does not authenticate callers. A forwarded call carries its caller's metadata,
// so that the owner can authenticate the caller again.
package routegrpc
