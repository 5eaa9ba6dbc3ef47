package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenure-go/tenure/backends/etcd"
)

// Dial opens a namespace from a process that is no member, as Member.Open does. Dial uses c.Cluster,
// c.Members or c.Domain, and c.ClientTLS, whose certificate must allow clients. If no member
// answers before ctx ends, Dial returns an error.
func Dial(ctx context.Context, c Config, namespace string, o *etcd.Options) (*Backend, error) {
	operator, err := Operate(ctx, c)
	if err != nil {
		return nil, err
	}
	b, err := operator.config.open(ctx, operator.config.endpoints(), namespace, o)
	if err != nil {
		operator.Close()
		return nil, err
	}
	return &Backend{Backend: b, trouble: operator.Trouble, release: func() error { operator.Close(); return nil }}, nil
}

// Operator manages a cluster from any process. Operator is safe for concurrent use.
type Operator struct {
	config Config
	client *clientv3.Client
}

// Operate returns an Operator of the cluster that c describes, with the fields that Dial uses. The
// caller must call Close.
func Operate(ctx context.Context, c Config) (*Operator, error) {
	c, err := c.checkedClient(ctx)
	if err != nil {
		return nil, err
	}
	return c.operate()
}

func (c *Config) operate() (*Operator, error) {
	client, err := c.connect(c.endpoints()...)
	return &Operator{*c, client}, err
}

// Close ends the Operator's connections.
func (o *Operator) Close() { _ = o.client.Close() } // the error only repeats that it is closed

// Members returns the cluster's current members, sorted by name, after it has asked each of them.
// If no majority answers before ctx ends, Members returns an error.
func (o *Operator) Members(ctx context.Context) ([]MemberInfo, error) {
	list, err := o.list(ctx)
	var all []MemberInfo
	leader := uint64(0)
	answers := make([]*clientv3.StatusResponse, len(list))
	var asked sync.WaitGroup
	for i, x := range list {
		asked.Go(func() { answers[i] = o.status(ctx, x) })
	}
	asked.Wait()
	for i, x := range list {
		m := MemberInfo{Address: Address{Name: x.Name, Peer: addressIn(x.PeerURLs), Client: addressIn(x.ClientURLs)},
			ID: x.ID, Learner: x.IsLearner, Silent: true}
		if s := answers[i]; s != nil {
			m.Silent, m.Size, leader = false, s.DbSize, max(leader, s.Leader)
		}
		all = append(all, m)
	}
	for i := range all {
		all[i].Leader = all[i].ID == leader
	}
	slices.SortFunc(all, func(a, b MemberInfo) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

func (o *Operator) list(ctx context.Context) ([]*etcdserverpb.Member, error) {
	list, err := o.client.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("tenure: quorum: no majority of cluster %q returned its members: %w", o.config.Cluster, err)
	}
	return list.Members, nil
}

// Trouble returns nil, or what an operator must fix: members that do not answer, a database that
// exceeds its quota, or a cluster without a majority.
func (o *Operator) Trouble(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok { // what is known by then must be said before ctx ends
		sooner, cancel := context.WithDeadline(ctx, end.Add(-time.Until(end)/4))
		defer cancel()
		ctx = sooner
	}
	all, err := o.Members(ctx)
	if err != nil {
		return err
	}
	var bad []string
	for _, m := range all {
		if m.Silent {
			bad = append(bad, fmt.Sprintf("member %q of the quorum does not answer (%s)", m.Name, m.Peer))
		}
	}
	alarms, err := o.client.AlarmList(ctx)
	if err == nil && slices.ContainsFunc(alarms.Alarms, func(a *etcdserverpb.AlarmMember) bool { return nospace(a) }) {
		bad = append(bad, "the quorum's database exceeds its quota, so writes fail")
	}
	if bad != nil {
		return errors.New(strings.Join(bad, "; "))
	}
	return nil // without an answer about alarms, too, since writes tell
}

// status returns a member's answer, or nil if none of its addresses answers.
func (o *Operator) status(ctx context.Context, x *etcdserverpb.Member) *clientv3.StatusResponse {
	limit := asking
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, u := range x.ClientURLs {
		if s, err := o.client.Status(ctx, u); err == nil && s.Header.MemberId == x.ID {
			return s
		}
	}
	return nil
}

func addressIn(urls []string) string {
	_, address, _ := strings.Cut(strings.Join(urls, " "), "://")
	return address
}

// Remove permanently removes the named member from the cluster. If the member runs, it stops with
// ErrRemoved. The cluster refuses a removal that leaves no connected majority. If another process is
// to take the member's place, call Replace in that process instead.
func (o *Operator) Remove(ctx context.Context, name string) error {
	list, err := o.list(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(x *etcdserverpb.Member) bool { return name != "" && x.Name == name })
	if i < 0 {
		return invalid("cluster %q has no member %.80q: use a name that Members returns", o.config.Cluster, name)
	}
	// The removed member may have had the request, and stops before it answers.
	id := list[i].ID
	if _, err := o.client.MemberRemove(ctx, id); err != nil && !o.gone(ctx, id) {
		return fmt.Errorf("tenure: quorum: remove member %q: %w", name, err)
	}
	return nil
}

// gone reports whether the cluster has no such member. An election may come first, so gone asks
// until it has an answer or twice the time of a question is over.
func (o *Operator) gone(ctx context.Context, id uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*asking)
	defer cancel()
	for {
		list, err := o.list(ctx)
		if err == nil {
			return !slices.ContainsFunc(list, func(x *etcdserverpb.Member) bool { return x.ID == id })
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
}

// connect returns a client, which connects when it is used.
func (c *Config) connect(endpoints ...string) (*clientv3.Client, error) {
	o := clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()}
	if c.ClientTLS != (TLS{}) {
		t, err := c.ClientTLS.info().ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("tenure: quorum: ClientTLS: %w", err)
		}
		o.TLS = t
	}
	return clientv3.New(o)
}

func (c *Config) endpoints() (all []string) {
	for _, m := range c.Members {
		all = append(all, c.ClientTLS.url(m.Client))
	}
	return all
}

// open opens a namespace with ClientTLS.
func (c *Config) open(
	ctx context.Context, endpoints []string, namespace string, o *etcd.Options,
) (*etcd.Backend, error) {
	s := etcd.Settings{Endpoints: endpoints, Namespace: namespace, CAFile: c.ClientTLS.CAFile,
		CertFile: c.ClientTLS.CertFile, KeyFile: c.ClientTLS.KeyFile}
	if o != nil {
		s.Options = *o
	}
	if s.MaxTxnOps != 0 || s.MaxRequestBytes != 0 {
		return nil, invalid("MaxTxnOps and MaxRequestBytes are those of the members: leave them 0")
	}
	b, err := etcd.Opener().Open(ctx, func(into any) error { *into.(*etcd.Settings) = s; return nil })
	if err != nil {
		return nil, err
	}
	return b.(*etcd.Backend), nil
}
