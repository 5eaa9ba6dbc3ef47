package servers

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// redisRecipe runs servers without a password. The servers keep their data in a log, and flush the
// log to disk with each write. Each line of Options.Config is a line of redis.conf, in the form
// "name value", and overrides the recipe's settings. Options.NoSync has no effect.
//
// Several servers form a cluster. In a cluster of three to five servers, all servers are masters.
// In a cluster of six or more servers, the first half are masters. The second half are replicas of
// these masters, in the same order.
func redisRecipe() (recipe, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return recipe{}, unavailable(Redis, "no redis-server in the PATH: run make servers")
	}
	var serve *local
	return recipe{
		ports:   1, // between a cluster's nodes
		prepare: func(context.Context, *local) error { return nil },
		form:    formRedis,
		configure: func(l *local) error {
			serve = l
			return configureRedis(l)
		},
		command: func(l *local) (string, []string) { return path, []string{l.path("conf", "redis.conf")} },
		probe:   func(conn net.Conn) error { return probeRedis(conn, serve.files) },
		dsns: func(l *local) (user, admin, local DSN) {
			d := DSN{kind: Redis, network: "tcp", addr: l.addr()}
			return d, d, d
		},
	}, nil
}

func configureRedis(l *local) error {
	lines := []string{
		"bind 127.0.0.1",
		"daemonize no",
		"dir " + l.path("data"),
		`save ""`,
		"appendonly yes",
		"appendfsync always",
		"loglevel warning",
		"repl-diskless-sync-delay 0", // instead of 5 s for more replicas
	}
	if l.files == nil {
		lines = append(lines, "port "+strconv.Itoa(l.port))
	} else {
		clients := "no"
		if l.opts.TLS == TLSMutual {
			clients = "yes"
		}
		lines = append(lines, "port 0", "tls-port "+strconv.Itoa(l.port), "tls-ca-cert-file "+l.files.ca,
			"tls-cert-file "+l.files.serverCert, "tls-key-file "+l.files.serverKey, "tls-auth-clients "+clients)
	}
	if len(l.members) > 1 {
		lines = append(lines, "cluster-enabled yes", "cluster-port "+strconv.Itoa(l.ports[0]),
			"cluster-replica-validity-factor 0") // no matter how long the master was away
	}
	_, err := l.write("redis.conf", strings.Join(append(lines, l.opts.Config...), "\n")+"\n")
	return err
}

// probeRedis sends a ping. An error about a missing password counts as an answer. The error of a
// server that is still loading data does not count as an answer.
func probeRedis(conn net.Conn, files *certificates) error {
	if files != nil {
		cfg, err := files.config()
		if err != nil {
			return err
		}
		conn = tls.Client(conn, cfg)
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.HasPrefix(answer, "+PONG") || strings.HasPrefix(answer, "-NOAUTH") {
		return nil
	}
	return fmt.Errorf("it is starting: %.80q", answer)
}

// formRedis distributes the slots among a cluster's masters, and waits until all nodes agree on the
// slots.
func formRedis(ctx context.Context, members []*local) error {
	masters := len(members)
	if masters >= 6 {
		masters /= 2
	}
	first := strconv.Itoa(members[0].port)
	for i, l := range members {
		var commands [][]string
		if i < masters {
			const slots = 16384
			commands = [][]string{{"CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i + 1)}, {"CLUSTER", "ADDSLOTSRANGE",
				strconv.Itoa(slots * i / masters), strconv.Itoa(slots*(i+1)/masters - 1)}}
		}
		if i > 0 {
			commands = append(commands, []string{"CLUSTER", "MEET", "127.0.0.1", first, strconv.Itoa(members[0].ports[0])})
		}
		for _, c := range commands {
			answer, err := l.redis(ctx, c...)
			if err == nil && answer != "OK" {
				err = fmt.Errorf("it answers %.200q", answer)
			}
			if err != nil {
				return fmt.Errorf("%v to %s: %w", c, l.name(), err)
			}
		}
	}
	for i, l := range members[masters:] {
		id, err := members[i].redis(ctx, "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		err = poll(ctx, func() (bool, error) { // after the node has heard of its master
			answer, err := l.redis(ctx, "CLUSTER", "REPLICATE", id)
			return answer == "OK", err
		})
		if err != nil {
			return fmt.Errorf("make %s a replica: %w", l.name(), err)
		}
	}
	return poll(ctx, func() (bool, error) {
		for i, l := range members {
			if ready, err := l.inCluster(ctx, len(members), i >= masters); err != nil || !ready {
				return false, err
			}
		}
		return true, nil
	})
}

// inCluster reports whether a node of a cluster knows all other nodes and all slots. If replica is
// true, the node must also have its master's data.
func (l *local) inCluster(ctx context.Context, nodes int, replica bool) (bool, error) {
	info, err := l.redis(ctx, "CLUSTER", "INFO")
	if err != nil {
		return false, err
	}
	for _, line := range []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:" + strconv.Itoa(nodes)} {
		if !strings.Contains(info, line+"\r") {
			return false, nil
		}
	}
	if replica {
		info, err = l.redis(ctx, "INFO", "replication")
		return strings.Contains(info, "master_link_status:up"), err
	}
	return true, nil
}

// redis sends one command, and returns the text or the error of the answer.
func (l *local) redis(ctx context.Context, command ...string) (string, error) {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", l.addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if l.files != nil {
		cfg, err := l.files.config()
		if err != nil {
			return "", err
		}
		conn = tls.Client(conn, cfg)
	}
	if _, err := io.WriteString(conn, strings.Join(command, " ")+"\r\n"); err != nil {
		return "", err
	}
	in := bufio.NewReader(conn)
	head, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := head[:1], strings.TrimSpace(head[1:])
	if kind != "$" {
		return text, nil
	}
	size, err := strconv.Atoi(text)
	if err != nil || size < 0 {
		return "", fmt.Errorf("%v is answered with %.80q", command, head)
	}
	body := make([]byte, size)
	_, err = io.ReadFull(in, body)
	return string(body), err
}

// sentinelRecipe runs Sentinels, without passwords and TLS, that watch a Redis server. If the
// master has not answered for down-after-milliseconds, a majority of Sentinels promotes a replica.
// The default for down-after-milliseconds is 30 s, and a test may set a shorter time.
func sentinelRecipe(of *Server) (recipe, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return recipe{}, unavailable(Sentinel, "no redis-server in the PATH: run make servers")
	}
	master, ok := of.inst.(*local)
	if !ok {
		return recipe{}, unavailable(Sentinel, "it watches a server that was started here only")
	}
	return recipe{
		prepare: func(context.Context, *local) error { return nil },
		configure: func(l *local) error {
			watch := "sentinel %s " + SentinelMaster + " %d"
			lines := []string{
				"bind 127.0.0.1", "daemonize no", "dir " + l.path("data"), "port " + strconv.Itoa(l.port),
				fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", SentinelMaster, master.port, len(l.members)/2+1),
				fmt.Sprintf(watch, "failover-timeout", 2000),
			}
			_, err := l.write("sentinel.conf", strings.Join(append(lines, l.opts.Config...), "\n")+"\n")
			return err
		},
		command: func(l *local) (string, []string) {
			return path, []string{l.path("conf", "sentinel.conf"), "--sentinel"}
		},
		probe: func(conn net.Conn) error { return probeRedis(conn, nil) },
		form:  formSentinels,
		dsns: func(l *local) (user, admin, local DSN) {
			d := DSN{kind: Sentinel, network: "tcp", addr: l.addr()}
			return d, d, d
		},
	}, nil
}

// formSentinels waits until each Sentinel has learned of all other Sentinels from the server that
// they watch.
func formSentinels(ctx context.Context, members []*local) error {
	return poll(ctx, func() (bool, error) {
		for _, l := range members {
			info, err := l.redis(ctx, "INFO", "sentinel")
			if err != nil {
				return false, err
			}
			if !strings.Contains(info, "sentinels="+strconv.Itoa(len(members))) {
				return false, nil
			}
		}
		return true, nil
	})
}
