package routegrpc

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// ClientOptions configure UnaryClient and StreamClient. Nil means the defaults.
type ClientOptions struct {
	// Attempts is the maximum number of attempts for each call. The default is 5, and at least one
	// attempt is made.
	Attempts int
	// Wait is how long the client waits before the next attempt if the shard has no owner. The
	// default is 500 ms.
	Wait time.Duration

	refused func() // called when a server refused a call or did not answer it; may be nil
}

func (o *ClientOptions) withDefaults() ClientOptions {
	c := ClientOptions{}
	if o != nil {
		c = *o
	}
	if c.Attempts == 0 {
		c.Attempts = 5
	}
	if c.Wait <= 0 {
		c.Wait = 500 * time.Millisecond
	}
	return c
}

// UnaryClient returns an interceptor that repeats a call if a Server refused it. The interceptor
// sends the call to the owner in the answer. If the shard had no owner, it tries again a little
// later. It repeats a call only if the answer states that nothing was done, and returns the last
// attempt's error. See Error. The Peers limit the addresses to which calls may be sent. The caller
// still owns the Peers.
func UnaryClient(peers *Peers, o *ClientOptions) grpc.UnaryClientInterceptor {
	c := o.withDefaults()
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		return c.follow(ctx, peers, always(cc), func(conn *grpc.ClientConn, done func()) error {
			defer done()
			return invoke(ctx, method, req, reply, conn, opts...)
		})
	}
}

// StreamClient is like UnaryClient, but for streams. To avoid sending a message twice, the
// interceptor waits until a server has begun the stream. This wait costs an extra round trip per
// stream. Use StreamClient only for servers that use Server.Stream. With other servers, a stream in
// which the client sends the first message blocks until its context ends.
func StreamClient(peers *Peers, o *ClientOptions) grpc.StreamClientInterceptor {
	c := o.withDefaults()
	return func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return c.stream(ctx, peers, always(cc), func(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
			return streamer(ctx, d, conn, method, opts...)
		})
	}
}

// The connection is for the first attempt and for each attempt after a wait. The function done
// releases it.
type first func() (conn *grpc.ClientConn, done func(), err error)

func always(cc *grpc.ClientConn) first {
	return func() (*grpc.ClientConn, func(), error) { return cc, func() {}, nil }
}

func (c *ClientOptions) stream(ctx context.Context, peers *Peers, first first,
	open func(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error)) (grpc.ClientStream, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, begunKey, "1")
	var begun grpc.ClientStream
	err := c.follow(ctx, peers, first, func(conn *grpc.ClientConn, done func()) (err error) {
		begun, err = open(ctx, conn)
		if err == nil {
			err = begin(begun)
		}
		if err != nil {
			done()
			return err
		}
		context.AfterFunc(begun.Context(), done) // done is called when the stream ends
		return nil
	})
	if err != nil {
		return nil, err
	}
	return begun, nil
}

// A stream that the server has refused has ended.
func begin(s grpc.ClientStream) error {
	header, err := s.Header()
	if err != nil || header != nil {
		return err
	}
	if err := s.RecvMsg(&emptypb.Empty{}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return status.Error(codes.Internal, "the stream ended before it began")
}

// If nothing was done, follow repeats the call. The call must release its connection.
func (c *ClientOptions) follow(ctx context.Context, peers *Peers, first first, call func(conn *grpc.ClientConn, done func()) error) error {
	begin := func() error {
		conn, done, err := first()
		if err != nil {
			return err
		}
		return call(conn, done)
	}
	err := begin()
	for attempt := 1; attempt < c.Attempts; attempt++ {
		owner := (*OwnerError)(nil)
		refused := errors.As(Error(err), &owner)
		if c.refused != nil && (refused || status.Code(err) == codes.Unavailable) {
			c.refused()
		}
		if !refused {
			return err
		}
		switch {
		case owner.Node == "":
			timer := time.NewTimer(c.Wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return err
			}
			err = begin()
		case owner.Address == "":
			return err
		default:
			conn, done, derr := peers.take("", owner.Address)
			if derr != nil {
				return err
			}
			err = call(conn, done)
		}
	}
	return err
}
