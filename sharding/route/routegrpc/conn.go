package routegrpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding/route"
)

type keyed struct {
	c     *route.Client
	peers *Peers
	key   func(ctx context.Context, method string, req any) (string, error)
	o     ClientOptions
}

var _ grpc.ClientConnInterface = (*keyed)(nil)

// NewConn returns a connection for the clients that protoc generates. The connection sends each
// call to the owner of the call's key in one hop, according to the map of a route.Client. It uses
// the addresses under the metadata key "grpc", not those under the Client's AddressKey. It handles
// refusals as UnaryClient and StreamClient do, with the options o.
//
// The function key determines a call's key from its full method and message. For a stream, the
// message is nil, and the context must contain the key. If key returns an error, the call fails
// with this error. If the connection to the owner fails, the call fails with Unavailable, and is
// not repeated. The Peers limit the addresses to which calls may be sent. The caller still owns the
// Client and the Peers. The error matches core.ErrInvalid.
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

func (k *keyed) owner(key string) first {
	return func() (*grpc.ClientConn, func(), error) {
		at, err := k.c.Owner(key)
		if err != nil {
			return nil, nil, &OwnerError{Shard: at.Shard}
		}
		return k.peers.take("", at.Meta[defaultAddressKey])
	}
}
