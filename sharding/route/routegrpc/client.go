package routegrpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
)

// ClientOptions of UnaryClient. Nil works.
type ClientOptions struct {
	// Attempts is how often a call is made at most. Default 5; at least 1 is made.
	Attempts int
	// Wait is the wait before the next attempt where nobody owns the shard. Default
	// 500 ms.
	Wait time.Duration
}

// UnaryClient returns an interceptor that makes a call again, at the owner that a Server
// has answered with, or a little later where the shard had none. Only answers are followed
// by which nothing was done. After the last attempt the error is the caller's: see Error.
// The Peers are the caller's; their dial says to which addresses calls may go.
func UnaryClient(peers *Peers, o *ClientOptions) grpc.UnaryClientInterceptor {
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
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		for attempt := 1; attempt < c.Attempts; attempt++ {
			owner := (*OwnerError)(nil)
			switch {
			case err == nil || !errors.As(Error(err), &owner):
				return err
			case owner.Node == "":
				timer := time.NewTimer(c.Wait)
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
					return err
				}
				err = invoke(ctx, method, req, reply, cc, opts...)
			case owner.Address == "":
				return err
			default:
				conn, done, derr := peers.take(owner.Address)
				if derr != nil {
					return err
				}
				err = invoke(ctx, method, req, reply, conn, opts...)
				done()
			}
		}
		return err
	}
}
