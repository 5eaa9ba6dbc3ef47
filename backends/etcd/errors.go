package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/core/driver"
)

// failed classifies the error of a transaction (rule E1). After any error not listed here, the
// outcome is unknown. If the argument sent is false, the call never had a connection, so no part of
// it left this process.
func (s *store) failed(ctx context.Context, err error, sent, heartbeat bool) error {
	if s.life.Err() != nil {
		return errClosed()
	}
	if ctx.Err() != nil { // so that errors.Is finds it
		err = fmt.Errorf("%w (%w)", err, driver.Ended(ctx))
	}
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(rpctypes.Error(native(err)), t) {
				return true
			}
		}
		return false
	}
	switch {
	case !sent:
		s.nudge(err)
		return fmt.Errorf("tenure: %w: nothing was sent to etcd: %w", driver.ErrRetry, err)
	case is(rpctypes.ErrTooManyOps):
		return fmt.Errorf("tenure: %w: set max-txn-ops of all members as it was when this process started, or start "+
			"it again: %w", driver.ErrTooLarge, err)
	case is(rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("tenure: %w: max-request-bytes of the server is lower than Options.MaxRequestBytes: %w",
			driver.ErrTooLarge, err)
	case is(rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests), denied(err),
		// Even if etcd reports a full disk, it may have applied the write, so the outcome is
		// unknown. For a heartbeat, this does not matter, because even an applied heartbeat grants
		// nothing, and the refusal shows that the member is reachable.
		heartbeat && is(rpctypes.ErrNoSpace):
		return fmt.Errorf("tenure: %w: etcd refused it: %w", driver.ErrRetry, err)
	case is(rpctypes.ErrNoSpace):
		return fmt.Errorf("tenure: etcd is full: raise quota-backend-bytes or compact and defragment, then disarm the "+
			"alarm: %w", err)
	}
	return err
}

// denied reports whether the user was refused. Before it proposes a request, etcd checks the token.
// Permissions are checked again when the request is applied, before any change. The client renews
// an expired token.
func denied(err error) bool {
	if err == nil {
		return false
	}
	err = rpctypes.Error(native(err))
	for _, t := range []error{
		rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrInvalidAuthToken,
		rpctypes.ErrAuthOldRevision, rpctypes.ErrAuthFailed,
	} {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// native returns the gRPC error in err.
func native(err error) error {
	var of interface{ GRPCStatus() *status.Status }
	if errors.As(err, &of) {
		return of.GRPCStatus().Err()
	}
	return err
}

// nudge makes connections that are backing off connect immediately. Otherwise, a connection could
// wait up to two minutes after the server is back, and members would lose their leases. Callers
// limit the rate of calls. Only failed connections are nudged. While gRPC opens a connection, it
// writes a map that ResetConnectBackoff reads without a lock, which can crash the process
// (grpc/grpc-go#9155).
func (s *store) nudge(err error) {
	if status.Code(native(err)) != codes.Unavailable {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.cluster.conns() {
		if c.GetState() == connectivity.TransientFailure {
			c.ResetConnectBackoff()
		}
	}
}
