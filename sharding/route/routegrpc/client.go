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

// ClientOptions are the options of UnaryClient and StreamClient. Nil means the defaults.
type ClientOptions struct {
	// Attempts is the largest number of attempts to make a call. Default 5; there is at least
	// 1.
	Attempts int
	// Wait is the wait before the next attempt if the shard has no owner. Default 500 ms.
	Wait time.Duration

	refused func() // nil, or called when a server refused a call or did not answer it
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

// UnaryClient returns an interceptor that makes a call again if a Server refused it. It makes the
// call at the owner in the answer or, if the shard had none, a little later. It follows only
// answers that say that nothing was done. It returns the error of the last attempt: see Error. The
// Peers limit the addresses that calls may go to, and stay the caller's.
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

// StreamClient is like UnaryClient, but for streams. It waits until a server has begun a stream, so
// that no message is sent twice. This takes one more round trip for each stream. Use it only for
// servers that use Server.Stream. With other servers, a stream that begins with the client's
// message waits until its context ends.
func StreamClient(peers *Peers, o *ClientOptions) grpc.StreamClientInterceptor {
	c := o.withDefaults()
	return func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return c.stream(ctx, peers, always(cc), func(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
			return streamer(ctx, d, conn, method, opts...)
		})
	}
}

// first returns the connection of the first attempt, and of an attempt after a wait. done gives it
// back.
type first func() (conn *grpc.ClientConn, done func(), err error)

func always(cc *grpc.ClientConn) first {
	return func() (*grpc.ClientConn, func(), error) { return cc, func() {}, nil }
}

// stream opens a stream, and again if nothing was done.
func (c *ClientOptions) stream(ctx context.Context, peers *Peers, first first,
	open func(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error)) (grpc.ClientStream, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, BegunKey, "1")
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
		context.AfterFunc(begun.Context(), done) // done runs when the stream ends
		return nil
	})
	if err != nil {
		return nil, err
	}
	return begun, nil
}

// begin waits until the server has begun a stream. A refused stream has ended.
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

// follow makes a call again if nothing was done. The call gives its connection back.
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
