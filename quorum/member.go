package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/core"
)

// ErrRemoved means that this member was removed from its cluster, by Remove or by Replace on another
// machine. Its data is of no use to the cluster.
var ErrRemoved = errors.New("this member was removed from its cluster")

const (
	// grace is the time that clients' calls have to end when a member closes.
	grace = time.Second
	// closeTime limits Close. etcd takes up to 7 s to hand over its leadership, and 1 s for its peers.
	closeTime = 20 * time.Second
	// asking limits each question to another member.
	asking = 5 * time.Second
	// pause is the time between two attempts.
	pause = 200 * time.Millisecond
)

// Member is a running member of a cluster, which can also manage the cluster. Member is safe for
// concurrent use.
type Member struct {
	*Operator
	folder *folder
	etcd   *embed.Etcd

	mu      sync.Mutex
	servers []*grpc.Server // of clients
	err     error          // why etcd stopped

	closing atomic.Bool
	stop    context.CancelFunc // ends watch and tend
	done    chan struct{}      // closed when etcd has stopped
	tended  chan struct{}      // closed when tend has ended
	once    sync.Once
	closed  error
}

// Start makes this process a member of the cluster, and returns when the cluster has a majority
// that serves this member. The members may start in any order. If ctx ends first, Start stops the
// member and returns an error. Start may return up to 30 s after the end of ctx.
//
// Start checks c before it writes anything. If c is invalid or the data folder belongs to another
// cluster or member, the error matches core.ErrInvalid. If the member was removed, the error
// matches ErrRemoved. If etcd cannot read or write the folder, etcd may end the process, as it does
// later (see the package's limits).
func Start(ctx context.Context, c Config) (*Member, error) {
	return begin(ctx, c, func(c *Config, self Address, f *folder) (id identity, initial, state string, err error) {
		switch {
		case f.begun: // etcd ignores the initial members
		case f.id.Joining:
			err = invalid("Replace began in %s and did not end: call Replace again", c.Dir)
		case !c.Create:
			err = invalid("the data folder %s is empty: set Create if this is the first start of the cluster; if the data "+
				"is lost, call Replace", c.Dir)
		}
		return identity{Joining: f.id.Joining}, c.initial(), embed.ClusterStateFlagNew, err
	})
}

// begin starts etcd after prepare has chosen how, and closes the folder on failure.
func begin(
	ctx context.Context, c Config, prepare func(*Config, Address, *folder) (id identity, initial, state string, err error),
) (*Member, error) {
	c, self, err := c.checked(ctx)
	if err != nil {
		return nil, err
	}
	f, err := openFolder(&c, self)
	if err != nil {
		return nil, err
	}
	if f.id.Restoring {
		return nil, errors.Join(invalid("Restore began in %s and did not end: call Restore again", c.Dir), f.close())
	}
	m := &Member{folder: f, done: make(chan struct{}), tended: make(chan struct{})}
	id, initial, state, err := prepare(&c, self, f)
	if err == nil && !f.begun {
		id.Cluster, id.Member, id.Peer = c.Cluster, c.Name, self.Peer
		err = f.write(id)
	}
	if err == nil {
		m.Operator, err = c.operate()
	}
	if err == nil {
		e := c.embedded(self, initial, state, logger(c.Logger, &m.closing))
		e.ServiceRegister = m.register
		m.etcd, err = embed.StartEtcd(e)
	}
	if err != nil {
		if m.Operator != nil {
			m.Operator.Close()
		}
		if strings.Contains(err.Error(), "already been bootstrapped") {
			err = fmt.Errorf("%w: the cluster knows this member, whose data is lost: call Replace", err)
		}
		return nil, errors.Join(c.failed("cannot start", err), f.close())
	}
	var life context.Context
	life, m.stop = context.WithCancel(context.Background())
	go m.watch(life)
	go m.tend(life)
	if err := m.join(ctx); err != nil {
		return nil, errors.Join(c.failed("cannot join", err), m.Close())
	}
	return m, nil
}

// failed adds the member to an error, unless the error explains an invalid argument.
func (c *Config) failed(what string, err error) error {
	if errors.Is(err, core.ErrInvalid) {
		return err
	}
	return fmt.Errorf("tenure: quorum: member %q of cluster %q %s: %w", c.Name, c.Cluster, what, err)
}

func (m *Member) register(s *grpc.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers = append(m.servers, s)
}

// watch notices that etcd has stopped.
func (m *Member) watch(life context.Context) {
	defer close(m.done)
	err := errors.New("etcd stopped: see its messages in the log")
	select {
	case <-m.etcd.Server.StopNotify():
	case err = <-m.etcd.Err():
	case <-life.Done():
		return
	}
	if m.removed(life) {
		err = fmt.Errorf("%w: if it is to be a member again, move %s away and call Replace", ErrRemoved, m.config.Dir)
	}
	m.mu.Lock()
	m.err = err
	m.mu.Unlock()
}

// removed asks the other members whether this one still belongs to the cluster.
func (m *Member) removed(ctx context.Context) bool {
	id := m.etcd.Server.MemberID()
	if m.etcd.Server.Cluster().Member(id) == nil {
		return true
	}
	others, err := m.config.operateOthers()
	if err != nil {
		return false
	}
	defer others.Close()
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	list, err := others.client.MemberList(ctx)
	return err == nil && list.Header.ClusterId == uint64(m.etcd.Server.Cluster().ID()) &&
		!slices.ContainsFunc(list.Members, func(x *etcdserverpb.Member) bool { return x.ID == uint64(id) })
}

// join waits until the cluster serves this member, and then makes a learner a voter.
func (m *Member) join(ctx context.Context) error {
	select {
	case <-m.etcd.Server.ReadyNotify():
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return fmt.Errorf("no majority of the members answered: start the others, and compare their Cluster, Members and "+
			"TLS: %w", context.Cause(ctx))
	}
	for m.etcd.Server.IsLearner() {
		_, promoting := m.etcd.Server.PromoteMember(ctx, uint64(m.etcd.Server.MemberID()))
		select {
		case <-time.After(pause):
		case <-m.done:
			return m.err
		case <-ctx.Done():
			return fmt.Errorf("it has not caught up with the cluster; the next Start continues: %w",
				errors.Join(context.Cause(ctx), promoting))
		}
	}
	return nil
}

// Done returns a channel that is closed when this member has stopped. If the member stopped by
// itself, Err returns the reason, and the caller must call Close.
func (m *Member) Done() <-chan struct{} { return m.done }

// Err returns the reason why this member stopped by itself, or nil. If the member was removed, the
// error matches ErrRemoved.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		return nil
	}
	return m.config.failed("stopped", m.err)
}

// Open opens a namespace in the cluster, as etcd.Open does. The Backend connects to all members
// that this member knows, and works while a majority runs, whether or not this member does. Close
// the Backend before the member. MaxTxnOps and MaxRequestBytes in o must be 0.
func (m *Member) Open(ctx context.Context, namespace string, o *etcd.Options) (*Backend, error) {
	b, err := m.config.open(ctx, m.endpoints(), namespace, o)
	if err != nil {
		return nil, err
	}
	return &Backend{Backend: b, trouble: m.Trouble, release: func() error { return nil }}, nil
}

// Trouble returns the reason if this member has stopped, and otherwise what Operator.Trouble returns.
func (m *Member) Trouble(ctx context.Context) error {
	if err := m.Err(); err != nil {
		return err
	}
	return m.Operator.Trouble(ctx)
}

// endpoints returns the client URLs of all members that this member knows.
func (m *Member) endpoints() []string {
	all := m.config.endpoints()
	for _, x := range m.etcd.Server.Cluster().Members() { // replaced members may have other addresses
		all = append(all, x.ClientURLs...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Close stops this member within 20 s. A leader first hands its leadership over. The other members
// continue while they are a majority. If the member does not stop in time, Close returns an error,
// and the process must end before it can start the member again. Later calls return the same error.
func (m *Member) Close() error {
	m.once.Do(func() {
		m.closing.Store(true)
		m.stop()
		<-m.done
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			<-m.tended
			m.Operator.Close()
			hurry := time.AfterFunc(grace, m.disconnect) // watches end only when their connection does
			defer hurry.Stop()
			select {
			case <-m.etcd.Server.ReadyNotify():
			default: // etcd's Close would wait until a majority runs
				m.etcd.Server.HardStop()
			}
			m.etcd.Close()
		}()
		select {
		case <-ended:
			m.closed = m.folder.close()
		case <-time.After(closeTime):
			m.closed = m.config.failed("did not stop", fmt.Errorf("after %v: end the process", closeTime))
		}
	})
	return m.closed
}

// disconnect ends the connections of clients.
func (m *Member) disconnect() {
	m.mu.Lock()
	servers := slices.Clone(m.servers)
	m.mu.Unlock()
	for _, s := range servers {
		s.Stop()
	}
}
