package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	look = 2 * time.Second // between two looks at etcd's alarms
	// Attempts to make room follow each other after minWait, and then after twice as long each time.
	minWait, maxWait = 10 * time.Second, 10 * time.Minute
	// making limits one attempt. A member defragments 8 GiB within minutes.
	making = 10 * time.Minute
	soon   = 7 * 24 * time.Hour // a certificate that ends earlier is logged daily
)

// tend keeps the client's endpoints current, makes room, and logs certificates that end soon, until
// life ends. The goroutine that runs tend belongs to Close.
func (m *Member) tend(life context.Context) {
	defer close(m.tended)
	tick := time.NewTicker(look)
	defer tick.Stop()
	var tried, logged time.Time
	for wait := minWait; ; {
		m.client.SetEndpoints(m.endpoints()...)
		now, s := time.Now(), m.etcd.Server
		if now.Sub(logged) >= 24*time.Hour {
			m.config.logCertificates(now)
			logged = now
		}
		switch full := slices.ContainsFunc(s.Alarms(), nospace); {
		case full && s.Leader() == s.MemberID() && now.Sub(tried) >= wait:
			if !tried.IsZero() {
				wait = min(2*wait, maxWait)
			}
			m.makeRoom(life)
			tried = time.Now()
		case !full && now.Sub(tried) >= maxWait:
			tried, wait = time.Time{}, minWait
		}
		select {
		case <-life.Done():
			return
		case <-tick.C:
		}
	}
}

func nospace(a *etcdserverpb.AlarmMember) bool { return a.Alarm == etcdserverpb.AlarmType_NOSPACE }

// makeRoom frees space after the database has exceeded its quota, and lets the cluster write again.
func (m *Member) makeRoom(ctx context.Context) {
	log := m.config.Logger.With("cluster", m.config.Cluster, "quota", m.config.Quota)
	log.Warn("tenure: quorum: the database exceeds its quota, so the cluster refuses writes; its leader compacts and "+
		"defragments it now: if this repeats, raise Quota or store less", "size", m.etcd.Server.Backend().Size())
	ctx, cancel := context.WithTimeout(ctx, making)
	defer cancel()
	if err := m.compact(ctx); err != nil {
		log.Warn("tenure: quorum: the cluster still refuses writes; its leader tries again within 10 min", "error", err)
		return
	}
	log.Info("tenure: quorum: the cluster accepts writes again", "size", m.etcd.Server.Backend().Size())
}

// compact removes former revisions, which no backend needs: a backend whose watch is interrupted reads
// again. Then members defragment one after the other, the leader last.
func (m *Member) compact(ctx context.Context) error {
	now, err := m.client.Get(ctx, "x")
	if err != nil {
		return err
	}
	_, err = m.client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return err
	}
	list, err := m.client.MemberList(ctx)
	if err != nil {
		return err
	}
	own := uint64(m.etcd.Server.MemberID())
	slices.SortFunc(list.Members, func(a, b *etcdserverpb.Member) int {
		switch own {
		case a.ID:
			return 1
		case b.ID:
			return -1
		}
		return 0
	})
	for _, x := range list.Members {
		if err := m.ready(ctx, list.Members, false); err != nil {
			return err
		}
		if _, err := m.client.Defragment(ctx, x.ClientURLs[0]); err != nil {
			return fmt.Errorf("member %q cannot defragment: %w", x.Name, err)
		}
	}
	if err := m.ready(ctx, list.Members, true); err != nil {
		return err
	}
	alarms, err := m.client.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, a := range alarms.Alarms {
		if nospace(a) {
			_, err = m.client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ready returns an error unless all members answer and, if fit is set, their databases keep the quota.
func (m *Member) ready(ctx context.Context, all []*etcdserverpb.Member, fit bool) error {
	for _, x := range all {
		s := m.status(ctx, x)
		if s == nil {
			return fmt.Errorf("member %q (%s) does not answer: start, replace or remove it", x.Name, addressIn(x.PeerURLs))
		}
		if fit && s.DbSize >= s.DbSizeQuota {
			return fmt.Errorf("the database of member %q has %d bytes: raise Quota, or store less", x.Name, s.DbSize)
		}
	}
	return nil
}

// logCertificates logs certificates with which other processes will soon accept no connection.
func (c *Config) logCertificates(now time.Time) {
	i := slices.IndexFunc(c.Members, func(m Address) bool { return m.Name == c.Name })
	for which, err := range map[string]error{
		"PeerTLS":   c.checkTLS(c.PeerTLS, c.Members[i].Peer, now.Add(soon), both...),
		"ClientTLS": c.checkTLS(c.ClientTLS, c.Members[i].Client, now.Add(soon), both...),
	} {
		if err != nil {
			c.Logger.Warn("tenure: quorum: within 7 days, others will refuse this member's certificate: replace the files; "+
				"after a change of CAFile, restart the members one by one", "cluster", c.Cluster, "files", which, "error", err)
		}
	}
}
