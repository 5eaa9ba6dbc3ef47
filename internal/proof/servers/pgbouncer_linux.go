package servers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

func pgbouncerRecipe(upstream *Server) (recipe, error) {
	path, err := lookPath("pgbouncer")
	if err != nil {
		return recipe{}, unavailable(PgBouncer, "no pgbouncer in the PATH or /usr/sbin: run make servers")
	}
	behind, ok := upstream.inst.(*local)
	if !ok {
		return recipe{}, unavailable(PgBouncer, "its PostgreSQL was named by %s: unset that to have one started",
			Postgres.variable())
	}
	return recipe{
		accounts:  []string{"postgres", "nobody"},
		prepare:   func(context.Context, *local) error { return nil },
		configure: func(l *local) error { return configurePgBouncer(l, behind) },
		command:   func(l *local) (string, []string) { return path, []string{l.path("conf", "pgbouncer.ini")} },
		probe:     probePostgres,
		dsns: func(l *local) (user, admin, local DSN) {
			user = postgresDSN(l.addr(), l.files).As(upstream.user.user, upstream.user.password)
			return user, user.As(upstream.admin.user, upstream.admin.password), upstream.local
		},
	}, nil
}

func configurePgBouncer(l, behind *local) error {
	users, err := l.write("users", fmt.Sprintf("%q %q\n%q %q\n", userName, behind.userPassword, adminName,
		behind.adminPassword))
	if err != nil {
		return err
	}
	lines := []string{
		"[databases]",
		"* = host=127.0.0.1 port=" + strconv.Itoa(behind.port),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		"listen_port = " + strconv.Itoa(l.port),
		"unix_socket_dir =",
		"auth_type = scram-sha-256",
		"auth_file = " + users,
		"pool_mode = transaction",
		"max_client_conn = 500",
		"default_pool_size = 20",
	}
	if l.files != nil {
		mode := "require"
		if l.opts.TLS == TLSMutual {
			mode = "verify-ca"
		}
		lines = append(lines, "client_tls_sslmode = "+mode, "client_tls_ca_file = "+l.files.ca,
			"client_tls_cert_file = "+l.files.serverCert, "client_tls_key_file = "+l.files.serverKey)
	}
	if up := behind.files; up != nil {
		// The upstream's files may belong to another user.
		ca, err := l.copy("upstream-ca.pem", up.ca)
		if err != nil {
			return err
		}
		lines = append(lines, "server_tls_sslmode = verify-full", "server_tls_ca_file = "+ca)
		if up.clientKey != "" {
			cert, err := l.copy("upstream-client.pem", up.clientCert)
			if err != nil {
				return err
			}
			key, err := l.copy("upstream-client.key", up.clientKey)
			if err != nil {
				return err
			}
			lines = append(lines, "server_tls_cert_file = "+cert, "server_tls_key_file = "+key)
		}
	}
	_, err = l.write("pgbouncer.ini", strings.Join(append(lines, l.opts.Config...), "\n")+"\n")
	return err
}
