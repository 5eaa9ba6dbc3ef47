package servers

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// A Cluster consists of several servers of one kind that form one store. Each member is a Server,
// whose methods cause faults in that member only. The methods of Cluster affect all members, and
// are safe for concurrent use.
type Cluster struct {
	members []*Server
}

// StartCluster starts a store of n members, if the kind supports clusters. StartCluster returns
// when every member serves. The options apply to each member. The context limits only the start.
// The caller must close the cluster. If this machine has no servers of the kind, the error is
// ErrUnavailable.
func StartCluster(ctx context.Context, kind Kind, n int, o *Options) (*Cluster, error) {
	if err := kind.check(); err != nil {
		return nil, err
	}
	if o == nil {
		o = &Options{}
	}
	if err := o.check(kind); err != nil {
		return nil, err
	}
	if short(kind) {
		return nil, unavailable(kind, "-short: "+RequireVariable+" does not list it; .ci/run runs these tests")
	}
	if n < 1 || n > 9 {
		return nil, fmt.Errorf("tenure: %s: a cluster has 1 to 9 members, not %d", kind, n)
	}
	members, err := startLocalCluster(ctx, kind, n, o)
	if err != nil {
		return nil, err
	}
	return &Cluster{members: members}, nil
}

// NewCluster starts a cluster for one test, which may stop, kill and reconfigure the cluster.
// NewCluster closes the cluster after the test. If the test failed, NewCluster shows the ends of
// the servers' logs. If the machine has no such servers, NewCluster skips or fails the test, as
// Unavailable does.
func NewCluster(t testing.TB, kind Kind, n int, o *Options) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	c, err := StartCluster(ctx, kind, n, o)
	Unavailable(t, kind, err)
	t.Cleanup(func() {
		for i, s := range c.members {
			if t.Failed() {
				t.Logf("end of the log of member %d of %s at %s:\n%s", i, kind, s.Addr(), s.Logs())
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Members returns the servers, in order.
func (c *Cluster) Members() []*Server { return append([]*Server(nil), c.members...) }

// Addrs returns the members' addresses for clients (host:port), in the same order.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.members))
	for i, s := range c.members {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Kill kills all members.
func (c *Cluster) Kill(ctx context.Context) error {
	return c.each(func(s *Server) error { return s.Kill(ctx) })
}

// Restart kills all members, and then starts them again on their ports and data.
func (c *Cluster) Restart(ctx context.Context) error {
	if err := c.Kill(ctx); err != nil {
		return err
	}
	return c.each(func(s *Server) error { return s.Restart(ctx) })
}

// Close ends all members and removes their data. A second Close has no effect.
func (c *Cluster) Close() error {
	return c.each((*Server).Close)
}

// The calls run concurrently, because a starting member may wait for the others.
func (c *Cluster) each(do func(*Server) error) error {
	errs := make(chan error, len(c.members))
	for _, s := range c.members {
		go func() { errs <- do(s) }()
	}
	var all []error
	for range c.members {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
