// Package routegrpc takes gRPC calls to the owner of their shard, as package route does for HTTP
// requests.
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
// A member publishes its address, a host and a port, in its metadata under the key "grpc".
// route.FromContext returns the lease under which a call is served.
//
// A forwarded call is marked in its metadata and is not forwarded again (one hop). A call that is
// neither served nor forwarded ends with:
//
//   - FailedPrecondition, if another member owns the shard
//   - Unavailable, if the shard has no owner
//   - InvalidArgument, if the call names no shard
//
// In these cases, nothing was done. The details of the first two name the shard and its owner;
// [Error] turns them into an *OwnerError. A forwarded call ends as the owner ended it. If the
// answer was lost, it ends with Unavailable without such details, and may have been done.
//
// # What it does not do
//
// A Server answers a stream with the owner and never forwards it: see [Server.Stream] and
// [StreamClient]. A stream that has begun does not move: it ends with the lease. The package does
// not authenticate. A forwarded call carries the metadata of its caller, so the owner authenticates
// it again.
package routegrpc
