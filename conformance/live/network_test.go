package live_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/hashicorp/consul/api"
	goredis "github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/core/driver"
)

// onEtcd takes endpoints, separated by commas.
func onEtcd(dsn string, s settings) (*target, error) {
	endpoints := strings.Split(dsn, ",")
	return &target{
		where: dsn,
		open:  s.opens(etcd.Opener(), "endpoints", endpoints),
		remove: func(ctx context.Context, namespaces []string) (string, error) {
			secured, err := s.tls(strings.HasPrefix(dsn, "https://"))
			if err != nil {
				return "", err
			}
			client, err := clientv3.New(clientv3.Config{
				Context: ctx, Endpoints: endpoints, TLS: secured, Logger: zap.NewNop(),
				Username: s.text("username", ""), Password: cmp.Or(s.fileIn("password_file"), s.text("password", "")),
			})
			if err != nil {
				return "", err
			}
			defer client.Close()
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
	}, nil
}

// onConsul takes an agent's address.
func onConsul(dsn string, s settings) (*target, error) {
	return &target{
		where: dsn,
		open:  s.opens(consul.Opener(), "address", dsn),
		remove: func(ctx context.Context, namespaces []string) (string, error) {
			c := api.Config{
				Address: dsn, Datacenter: s.text("datacenter", ""),
				Token: cmp.Or(s.fileIn("token_file"), s.text("token", "")),
				TLSConfig: api.TLSConfig{Address: s.text("server_name", ""), CAFile: s.text("ca_file", ""),
					CertFile: s.text("cert_file", ""), KeyFile: s.text("key_file", "")},
			}
			if s["tls"] == true {
				c.Scheme = "https"
			}
			client, err := api.NewClient(&c)
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
	}, nil
}

// onRedis takes addresses, separated by commas.
func onRedis(dsn string, s settings) (*target, error) {
	addrs := strings.Split(dsn, ",")
	return &target{
		where: dsn,
		open:  s.opens(redis.Opener(), "addrs", addrs),
		remove: func(ctx context.Context, namespaces []string) (string, error) {
			secured, err := s.tls(s["tls"] == true || s.text("ca_file", "")+s.text("cert_file", "") != "")
			if err != nil {
				return "", err
			}
			client := goredis.NewUniversalClient(&goredis.UniversalOptions{
				Addrs: addrs, TLSConfig: secured, MasterName: s.text("master_name", ""), Username: s.text("username", ""),
				Password: cmp.Or(s.fileIn("password_file"), s.text("password", "")),
			})
			defer client.Close()
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
	}, nil
}

// onZooKeeper takes servers, separated by commas.
func onZooKeeper(dsn string, s settings) (*target, error) {
	servers := strings.Split(dsn, ",")
	return &target{
		where: dsn,
		open:  s.opens(zookeeper.Opener(), "servers", servers),
		remove: func(ctx context.Context, namespaces []string) (string, error) {
			c, err := s.zookeeper(servers)
			if err != nil {
				return "", err
			}
			defer c.Close()
			defer context.AfterFunc(ctx, c.Close)() // no call of the client's takes a context
			root := s.text("root", zookeeper.DefaultRoot)
			parent, _, _ := strings.Cut(namespaces[0], "/")
			records, err := prune(c, root+"/"+parent)
			if gone := c.Delete(root+"/"+parent, -1); gone == nil {
				records++
			}
			return removedRecords(records, namespaces), err
		},
		left: "the root, and in it an empty node where the user may not remove that",
	}, nil
}

func (s settings) zookeeper(servers []string) (*zk.Conn, error) {
	secured, err := s.tls(s["tls"] == true || s.text("ca_file", "")+s.text("cert_file", "") != "")
	if err != nil {
		return nil, err
	}
	dial := net.DialTimeout
	if secured != nil {
		dial = func(network, addr string, limit time.Duration) (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: limit}, network, addr, secured)
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

// prune deletes all that is below a node, and counts it.
func prune(c *zk.Conn, node string) (deleted int64, err error) {
	children, _, err := c.Children(node)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return 0, fmt.Errorf("node %s: %w", node, err)
	}
	for _, child := range children {
		n, err := prune(c, node+"/"+child)
		deleted += n
		if err != nil {
			return deleted, err
		}
		err = c.Delete(node+"/"+child, -1)
		if errors.Is(err, zk.ErrNoAuth) {
			err = errors.Join(allowDelete(c, node), c.Delete(node+"/"+child, -1))
		}
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return deleted, fmt.Errorf("node %s/%s: %w", node, child, err)
		}
		deleted++
	}
	return deleted, nil
}

// allowDelete lets a directory's own users delete in it. Permanent records are
// protected from mistakes by that right, where there is no administrator.
func allowDelete(c *zk.Conn, node string) error {
	acl, _, err := c.GetACL(node)
	if err != nil {
		return err
	}
	for i := range acl {
		acl[i].Perms |= zk.PermDelete
	}
	_, err = c.SetACL(node, acl, -1)
	return err
}

func removedRecords(records int64, namespaces []string) string {
	return fmt.Sprintf("%d records of %d namespaces", records, len(namespaces))
}

// tls is the options' TLS configuration, nil if none asks for it.
func (s settings) tls(asked bool) (*tls.Config, error) {
	if !asked {
		return nil, nil
	}
	return driver.TLSFiles{CA: s.text("ca_file", ""), Cert: s.text("cert_file", ""), Key: s.text("key_file", ""),
		ServerName: s.text("server_name", "")}.Config()
}
