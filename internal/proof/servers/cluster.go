package servers

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Cluster is several servers of one kind that form one store. Each member is a Server with its own
// faults. The methods here act on all members. Safe for concurrent use.
type Cluster struct {
	members []*Server
}

// StartCluster starts a store of n members of a kind that has clusters. It returns when every
// member serves. o is for each member. ctx limits the start only. The caller closes the cluster. If
// this machine does not have the kind, the error is ErrUnavailable.
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

// NewCluster starts a cluster for one test, which may stop, kill and reconfigure it. The cluster is
// closed after the test. If the test failed, the ends of its logs are shown. If the machine has no
// such servers, NewCluster does what Unavailable does.
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

// Addrs returns the members' host:port for clients, in the same order.
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

// Close ends all members and removes their data. A second Close does nothing.
func (c *Cluster) Close() error {
	return c.each((*Server).Close)
}

// each acts on all members concurrently, because a starting member may wait for the others.
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
