package routegrpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding/route"
)

// keyed is the connection that NewConn returns.
type keyed struct {
	c     *route.Client
	peers *Peers
	key   func(ctx context.Context, method string, req any) (string, error)
	o     ClientOptions
}

var _ grpc.ClientConnInterface = (*keyed)(nil)

// NewConn returns a connection for the clients that protoc generates. It makes each call at the
// owner of its key in one hop, according to the map of a route.Client. The Client's AddressKey has
// no effect: DefaultAddressKey is used. The connection follows refusals as UnaryClient and
// StreamClient do, with the same options o.
//
// key returns the key of a call from its full method and message. For a stream, the message is
// nil, and the context must hold the key. If key returns an error, the caller gets it. If the
// connection to the owner fails, the call fails with Unavailable, and is not made again. The
// Peers limit the addresses. The Client and the Peers stay the caller's. The error matches
// core.ErrInvalid.
func NewConn(c *route.Client, peers *Peers, key func(ctx context.Context, method string, req any) (string, error), o *ClientOptions,
) (grpc.ClientConnInterface, error) {
	if c == nil || peers == nil || key == nil {
		return nil, fmt.Errorf("tenure: %w: a connection to owners needs a route.Client, Peers and the key of a call", core.ErrInvalid)
	}
	k := &keyed{c, peers, key, o.withDefaults()}
	k.o.refused = c.Refresh
	return k, nil
}

// Invoke implements grpc.ClientConnInterface.
func (k *keyed) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
	key, err := k.key(ctx, method, req)
	if err != nil {
		return err
	}
	return k.o.follow(ctx, k.peers, k.owner(key), func(conn *grpc.ClientConn, done func()) error {
		defer done()
		return conn.Invoke(ctx, method, req, reply, opts...)
	})
}

// NewStream implements grpc.ClientConnInterface.
func (k *keyed) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	key, err := k.key(ctx, method, nil)
	if err != nil {
		return nil, err
	}
	return k.o.stream(ctx, k.peers, k.owner(key), func(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
		return conn.NewStream(ctx, d, method, opts...)
	})
}

// owner takes the connection to the owner of a key.
func (k *keyed) owner(key string) first {
	return func() (*grpc.ClientConn, func(), error) {
		at, err := k.c.Owner(key)
		if err != nil {
			return nil, nil, &OwnerError{Shard: at.Shard}
		}
		return k.peers.take("", at.Meta[DefaultAddressKey])
	}
}
