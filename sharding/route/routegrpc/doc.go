// Package routegrpc takes gRPC calls to the owner of their shard, as package route does
// for HTTP.
//
//	in, err := routegrpc.NewServer(elector, router, &routegrpc.Options{
//		Shard: func(_ context.Context, method string, req any) (string, error) {
//			return keyspace.Shard(req.(*pb.Order).Id), nil
//		},
//		Peers: peers, // to forward; else calls are answered with the owner
//	})
//	grpc.NewServer(grpc.UnaryInterceptor(in.Unary), grpc.StreamInterceptor(in.Stream))
//
//	conn, err := grpc.NewClient(addr, grpc.WithUnaryInterceptor(routegrpc.UnaryClient(peers, nil)))
//
// A member tells its address, which is a host and a port, in its metadata under the key
// "grpc". route.FromContext has the lease under which a call is served.
//
// A call that was forwarded says so in its metadata and is never forwarded again (one
// hop). A call for another member's shard that is not forwarded ends with
// FailedPrecondition, one for a shard that nobody serves with Unavailable, and one that
// names no shard with InvalidArgument; nothing was done then, and the status says so in
// its details, from which [Error] makes an *OwnerError. A call that was forwarded ends as
// the owner ended it; where its answer was lost, that is Unavailable without such details,
// and the call may have been done.
//
// # What it does not do
//
// Streams are answered with the owner, and never forwarded: see [Server.Stream] and
// [StreamClient]. One that has begun is not moved: it ends with the lease. It does not
// authenticate; a forwarded call carries the metadata of its caller, so the owner
// authenticates it again.
package routegrpc
