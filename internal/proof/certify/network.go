package certify

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/hashicorp/consul/api"
	goredis "github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenure-go/tenure/core/driver"
)

func onEtcd(s settings) (*target, error) {
	endpoints := s.list("endpoints")
	connect := func(ctx context.Context) (*clientv3.Client, error) {
		secured, err := s.tls(slices.ContainsFunc(endpoints, isHTTPS))
		if err != nil {
			return nil, err
		}
		return clientv3.New(clientv3.Config{
			Context: ctx, Endpoints: endpoints, TLS: secured, Logger: zap.NewNop(),
			Username: s.text("username", ""), Password: cmp.Or(s.fileIn("password_file"), s.text("password", "")),
		})
	}
	t := &target{
		where: shownAddresses(endpoints),
		version: func(ctx context.Context) (string, error) {
			client, err := connect(ctx)
			if err != nil {
				return "", err
			}
			defer client.Close() //nolint:errcheck // what it did is known
			status, err := client.Status(ctx, endpoints[0])
			if err != nil {
				return "", err
			}
			return "etcd " + status.Version, nil
		},
		remove: func(ctx context.Context, _ string, namespaces []string) (string, error) {
			client, err := connect(ctx)
			if err != nil {
				return "", err
			}
			defer client.Close() //nolint:errcheck // what it did is known
			records := int64(0)
			for _, ns := range namespaces {
				r, err := client.Delete(ctx, ns+"/!", clientv3.WithPrefix())
				if err != nil {
					return removedRecords(records, namespaces), err
				}
				records += r.Deleted
			}
			return removedRecords(records, namespaces), nil
		},
		left: "nothing",
	}
	t.proxied(s, "endpoints", endpoints)
	return t, nil
}

func isHTTPS(address string) bool { return strings.HasPrefix(address, "https://") }

// proxied sets how the members reach servers through proxies. All addresses must have the form
// host:port or http://host:port.
func (t *target) proxied(s settings, key string, addresses []string) {
	var addrs []string
	for _, a := range addresses {
		a = strings.TrimPrefix(a, "http://")
		if _, _, err := net.SplitHostPort(a); err != nil {
			t.uncut = "an address is not host:port"
			return
		}
		addrs = append(addrs, a)
	}
	switch {
	case len(addrs) == 0:
		t.uncut = "the settings have no address"
		return
	case s["tls"] == true || s.text("ca_file", "")+s.text("cert_file", "") != "" || slices.ContainsFunc(addresses, isHTTPS):
		t.uncut = overTLS
		return
	}
	t.addrs = addrs
	t.through = func(addrs []string) settings {
		to := maps.Clone(s)
		to[key] = addrs
		return to
	}
}

func onConsul(s settings) (*target, error) {
	addresses := s.list("addresses")
	if a := s.text("address", ""); a != "" {
		addresses = []string{a}
	}
	connect := func() (*api.Client, error) {
		c := api.Config{
			Datacenter: s.text("datacenter", ""),
			Token:      cmp.Or(s.fileIn("token_file"), s.text("token", "")),
			TLSConfig: api.TLSConfig{Address: s.text("server_name", ""), CAFile: s.text("ca_file", ""),
				CertFile: s.text("cert_file", ""), KeyFile: s.text("key_file", "")},
		}
		if len(addresses) > 0 {
			c.Address = addresses[0]
		}
		if s["tls"] == true {
			c.Scheme = "https"
		}
		return api.NewClient(&c)
	}
	t := &target{
		where: cmp.Or(shownAddresses(addresses), "the agent of this host, or that of CONSUL_HTTP_ADDR"),
		version: func(ctx context.Context) (string, error) {
			client, err := connect()
			if err != nil {
				return "", err
			}
			var self struct{ Config struct{ Version string } }
			_, err = client.Raw().Query("/v1/agent/self", &self, (&api.QueryOptions{}).WithContext(ctx))
			return "Consul " + self.Config.Version, err
		},
		remove: func(ctx context.Context, _ string, namespaces []string) (string, error) {
			client, err := connect()
			if err != nil {
				return "", err
			}
			records := int64(0)
			for _, ns := range namespaces {
				keys, _, err := client.KV().Keys(ns+"/!", "", (&api.QueryOptions{}).WithContext(ctx))
				if err == nil {
					_, err = client.KV().DeleteTree(ns+"/!", (&api.WriteOptions{}).WithContext(ctx))
				}
				if err != nil {
					return removedRecords(records, namespaces), err
				}
				records += int64(len(keys))
			}
			return removedRecords(records, namespaces), nil
		},
		left: "nothing",
	}
	if len(addresses) == 1 {
		t.proxied(s, "address", addresses)
		through := t.through
		if through != nil {
			t.through = func(addrs []string) settings {
				to := through(addrs)
				to["address"] = addrs[0]
				return to
			}
		}
	} else {
		t.proxied(s, "addresses", addresses)
	}
	return t, nil
}

func onRedis(s settings) (*target, error) {
	addrs := s.list("addrs")
	connect := func() (goredis.UniversalClient, error) {
		secured, err := s.tls(s["tls"] == true || s.text("ca_file", "")+s.text("cert_file", "") != "")
		if err != nil {
			return nil, err
		}
		db, _ := s["db"].(int)
		return goredis.NewUniversalClient(&goredis.UniversalOptions{
			Addrs: addrs, DB: db, TLSConfig: secured, MasterName: s.text("master_name", ""), IsClusterMode: s["cluster"] == true,
			Username: s.text("username", ""), Password: cmp.Or(s.fileIn("password_file"), s.text("password", "")),
			SentinelUsername: s.text("sentinel_username", ""), SentinelPassword: s.text("sentinel_password", ""),
		}), nil
	}
	t := &target{
		where: shownAddresses(addrs),
		version: func(ctx context.Context) (string, error) {
			client, err := connect()
			if err != nil {
				return "", err
			}
			defer client.Close() //nolint:errcheck // what it did is known
			text, err := client.Info(ctx, "server").Result()
			for _, line := range strings.Split(text, "\n") {
				if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
					return "Redis " + strings.TrimSpace(v), nil
				}
			}
			return "", cmp.Or(err, errors.New("INFO names no version"))
		},
		remove: func(ctx context.Context, _ string, namespaces []string) (string, error) {
			client, err := connect()
			if err != nil {
				return "", err
			}
			defer client.Close() //nolint:errcheck // what it did is known
			records := int64(0)
			for _, ns := range namespaces {
				root := "{" + ns + "}/"
				sessions, err := client.ZRangeByLex(ctx, root+"names", &goredis.ZRangeBy{Min: "[!beat/", Max: "(!beat0"}).Result()
				if err != nil {
					return removedRecords(records, namespaces), err
				}
				keys := []string{root + "records", root + "names", root + "state", root + "logs", root + "beats"}
				for _, name := range sessions {
					keys = append(keys, root+strings.TrimPrefix(name, "!"))
				}
				records += client.ZCard(ctx, root+"names").Val()
				if err := client.Del(ctx, keys...).Err(); err != nil {
					return removedRecords(records, namespaces), err
				}
			}
			return removedRecords(records, namespaces), nil
		},
		left: "nothing",
	}
	if len(addrs) > 1 || s.text("master_name", "") != "" || s["cluster"] == true {
		t.uncut = "the client learns the servers' own addresses from a cluster or from Sentinels"
	} else {
		t.proxied(s, "addrs", addrs)
	}
	return t, nil
}

func onZooKeeper(s settings) (*target, error) {
	servers := s.list("servers")
	t := &target{
		where:   shownAddresses(servers),
		version: func(context.Context) (string, error) { return "", errors.New("its protocol does not tell") },
		remove: func(ctx context.Context, root string, namespaces []string) (string, error) {
			c, err := s.zookeeper(servers)
			if err != nil {
				return "", err
			}
			defer c.Close()
			defer context.AfterFunc(ctx, c.Close)() // no call of the client's takes a context
			top := s.text("root", "/tenure") + "/" + root
			records, err := prune(c, top, slices.Contains(namespaces, root))
			if gone := c.Delete(top, -1); gone == nil {
				records++
			}
			return removedRecords(records, namespaces), err
		},
		left: "the root, and in it an empty node where the user may not remove that",
	}
	t.proxied(s, "servers", servers)
	return t, nil
}

func (s settings) zookeeper(servers []string) (*zk.Conn, error) {
	secured, err := s.tls(s["tls"] == true || s.text("ca_file", "")+s.text("cert_file", "") != "")
	if err != nil {
		return nil, err
	}
	dial := net.DialTimeout
	if secured != nil {
		dial = func(network, addr string, limit time.Duration) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			return (&tls.Dialer{Config: secured}).DialContext(ctx, network, addr)
		}
	}
	c, _, err := zk.Connect(servers, 10*time.Second, zk.WithLogger(silent{}), zk.WithDialer(dial))
	if err != nil {
		return nil, err
	}
	if user := s.text("user", ""); user != "" {
		password := cmp.Or(s.fileIn("password_file"), s.text("password", ""))
		if err := c.AddAuth("digest", []byte(user+":"+password)); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// prune deletes and counts all nodes below a node. If the node is a namespace, prune deletes only
// the namespace's own records, not the namespaces within it.
func prune(c *zk.Conn, node string, namespace bool) (deleted int64, err error) {
	children, _, err := c.Children(node)
	if namespace {
		children = slices.DeleteFunc(children, func(name string) bool { return name[0] != '!' })
		if i := slices.Index(children, "!id"); i >= 0 {
			if err := closeNamespace(c, node+"/!id"); err != nil {
				return 0, fmt.Errorf("node %s/!id: %w", node, err)
			}
			children = append(slices.Delete(children, i, i+1), "!id") // last, because it keeps members from creating the namespace
		}
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return 0, fmt.Errorf("node %s: %w", node, err)
	}
	for _, child := range children {
		n, err := prune(c, node+"/"+child, false)
		deleted += n
		if err != nil {
			return deleted, err
		}
		err = c.Delete(node+"/"+child, -1)
		if errors.Is(err, zk.ErrNoAuth) {
			err = errors.Join(allow(c, node, zk.PermDelete), c.Delete(node+"/"+child, -1))
		}
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return deleted, fmt.Errorf("node %s/%s: %w", node, child, err)
		}
		deleted++
	}
	return deleted, nil
}

// closeNamespace writes an identity that prevents members from opening the namespace.
func closeNamespace(c *zk.Conn, id string) error {
	_, err := c.Set(id, []byte("removed"), -1)
	if errors.Is(err, zk.ErrNoAuth) {
		if err = allow(c, id, zk.PermWrite); err == nil {
			_, err = c.Set(id, []byte("removed"), -1)
		}
	}
	return err
}

// allow gives a node's users a permission. Without an administrator, users lack the permission only
// as a protection against mistakes.
func allow(c *zk.Conn, node string, right int32) error {
	acl, _, err := c.GetACL(node)
	if err != nil {
		return err
	}
	for i := range acl {
		acl[i].Perms |= right
	}
	_, err = c.SetACL(node, acl, -1)
	return err
}

func removedRecords(records int64, namespaces []string) string {
	return fmt.Sprintf("%d records of %d namespaces", records, len(namespaces))
}

// tls returns the TLS configuration of the options, or nil if no option requests TLS.
func (s settings) tls(asked bool) (*tls.Config, error) {
	if !asked {
		return nil, nil
	}
	return driver.TLSFiles{CA: s.text("ca_file", ""), Cert: s.text("cert_file", ""), Key: s.text("key_file", ""),
		ServerName: s.text("server_name", "")}.Config()
}
