package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/route"
)

// member is one endpoint, with separate connections for heartbeats (rule E4) and for all other
// calls.
type member struct {
	conn, beatConn *grpc.ClientConn
	kv, beats      etcdserverpb.KVClient
	watch          etcdserverpb.WatchClient
}

type cluster struct {
	endpoints []string
	members   []member
	routes    *route.Routes
}

// dialCluster creates connections with the client's configuration and token. A single endpoint,
// which may be a load balancer, gets two members, so that the heartbeat after an unanswered one
// uses another connection.
func dialCluster(life context.Context, client *clientv3.Client) (*cluster, error) {
	c := &cluster{endpoints: client.Endpoints()}
	if len(c.endpoints) == 0 {
		return nil, fmt.Errorf("%w: the client has no endpoint: set Endpoints", driver.ErrInvalid)
	}
	for i := range max(2, len(c.endpoints)) {
		var m member
		for _, conn := range []**grpc.ClientConn{&m.conn, &m.beatConn} {
			var err error
			if *conn, err = client.Dial(c.endpoints[i%len(c.endpoints)]); err != nil {
				c.members = append(c.members, m)
				return nil, errors.Join(err, c.close())
			}
		}
		m.kv, m.beats = etcdserverpb.NewKVClient(m.conn), etcdserverpb.NewKVClient(m.beatConn)
		m.watch = etcdserverpb.NewWatchClient(m.conn)
		c.members = append(c.members, m)
	}
	c.routes = route.New(life, len(c.members), rand.IntN(len(c.members)))
	return c, nil
}

func (c *cluster) close() error {
	var errs []error
	for _, conn := range c.conns() {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

func (c *cluster) conns() []*grpc.ClientConn {
	var all []*grpc.ClientConn
	for _, m := range c.members {
		all = append(all, m.conn, m.beatConn)
	}
	return slices.DeleteFunc(all, func(conn *grpc.ClientConn) bool { return conn == nil })
}

// members returns the cluster for the client's endpoints, which change if the client follows etcd's
// member list (AutoSyncInterval).
func (s *store) members() (*cluster, error) {
	endpoints := s.client.Endpoints()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return nil, errClosed()
	}
	if slices.Equal(s.cluster.endpoints, endpoints) {
		return s.cluster, nil
	}
	next, err := dialCluster(s.life, s.client)
	if err != nil {
		return nil, err
	}
	former := s.cluster
	s.cluster = next
	_ = former.close() // the error only means that it was already closed
	return next, nil
}

// begin chooses a member for a call, which requires the member to have a leader.
func (s *store) begin(
	ctx context.Context, way func(*route.Routes, context.Context) *route.Trip,
) (*route.Trip, *member, error) {
	c, err := s.members()
	if err != nil {
		return nil, nil, err
	}
	t := way(c.routes, clientv3.WithRequireLeader(ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Stale && s.cluster == c {
		s.renew(t.Server)
	}
	m := c.members[t.Server]
	return t, &m, nil
}

// renew replaces a member's idle heartbeat connection, unless a new connection cannot be made. The
// caller holds s.mu.
func (s *store) renew(i int) {
	c := s.cluster
	m := &c.members[i]
	conn, err := s.client.Dial(c.endpoints[i%len(c.endpoints)])
	if err != nil {
		return
	}
	_ = m.beatConn.Close()
	m.beatConn, m.beats = conn, etcdserverpb.NewKVClient(conn)
}

// finish ends a call. If the store stopped using the member, the error includes the reason.
func finish(ctx context.Context, t *route.Trip, err error) error {
	left := context.Cause(t.Context)
	if denied(err) {
		err = fmt.Errorf("%w: compare the user's roles with docs/backends/etcd.md: %w", driver.ErrDenied, err)
	}
	switch {
	case ctx.Err() != nil:
		t.Done(lateness(ctx))
	case left != nil:
		t.Done(route.Ended)
		if err != nil && (errors.Is(left, route.ErrSilent) || errors.Is(left, route.ErrMoved)) {
			return fmt.Errorf("%w: %w", left, err)
		}
	default:
		t.Done(verdict(err))
	}
	return err
}

// lateness returns the route's outcome after the caller's context has ended.
func lateness(ctx context.Context) route.Outcome {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return route.Failed
	}
	return route.Ended
}

// verdict returns the route's outcome for an error. A member whose leader is missing or does not
// answer is unavailable.
func verdict(err error) route.Outcome {
	if err != nil {
		switch status.Code(native(err)) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
			return route.Failed
		}
	}
	return route.Answered
}
