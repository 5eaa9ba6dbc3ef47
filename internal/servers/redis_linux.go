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
)

// redisRecipe runs one server without a password, that keeps its data in a log which it
// synchronizes with each write. Lines of Options.Config are those of redis.conf, "name
// value", and win over the settings here; NoSync has no effect.
func redisRecipe() (recipe, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return recipe{}, unavailable(Redis, "no redis-server in the PATH: run make servers")
	}
	var serve *local
	return recipe{
		prepare: func(context.Context, *local) error { return nil },
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
		"repl-diskless-sync-delay 0", // and not 5 s for more replicas to come
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
	_, err := l.write("redis.conf", strings.Join(append(lines, l.opts.Config...), "\n")+"\n")
	return err
}

// probeRedis pings. That a password is missing is an answer, too; that data is still
// being read is not.
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
