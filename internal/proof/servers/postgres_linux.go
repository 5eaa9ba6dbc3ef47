package servers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// oldestPostgres is the first major version whose initdb accepts an ICU collation for the whole
// server.
const oldestPostgres = 15

func postgresRecipe(upstream *Server) (recipe, error) {
	bin, err := postgresBinaries()
	if err != nil {
		return recipe{}, err
	}
	prepare := preparePostgres
	if upstream != nil {
		primary, ok := upstream.inst.(*local)
		if !ok {
			return recipe{}, unavailable(Postgres, "its primary was named by %s: unset that to have one started",
				Postgres.variable())
		}
		prepare = func(ctx context.Context, l *local, bin string) error { return copyPostgres(ctx, l, primary, bin) }
	}
	return recipe{
		accounts:  []string{"postgres", "nobody"},
		prepare:   func(ctx context.Context, l *local) error { return prepare(ctx, l, bin) },
		configure: configurePostgres,
		command: func(l *local) (string, []string) {
			return filepath.Join(bin, "postgres"), []string{"-D", l.path("data")}
		},
		probe: probePostgres,
		dsns: func(l *local) (user, admin, local DSN) {
			user = postgresDSN(l.addr(), l.files).As(userName, l.userPassword)
			admin = user.As(adminName, l.adminPassword)
			local = admin
			local.network, local.addr = "unix", net.JoinHostPort(l.path("conf"), strconv.Itoa(l.port))
			return user, admin, local.With("sslmode", "disable")
		},
	}, nil
}

// postgresBinaries finds the newest version in Debian's folders, or the version in the PATH.
func postgresBinaries() (string, error) {
	paths, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	best, version := "", 0
	for _, path := range paths {
		bin := filepath.Dir(path)
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && v > version {
			best, version = bin, v
		}
	}
	if version >= oldestPostgres {
		return best, nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	return "", unavailable(Postgres, "no initdb of version %d or later in /usr/lib/postgresql or the PATH: run make "+
		"servers, or set %s", oldestPostgres, Postgres.variable())
}

// preparePostgres creates the data. As in production, the collation differs from byte order. A
// query that relies on byte order therefore fails.
func preparePostgres(ctx context.Context, l *local, bin string) error {
	password, err := l.write("password", l.adminPassword+"\n")
	if err != nil {
		return err
	}
	err = l.run(ctx, "", filepath.Join(bin, "initdb"), "--no-sync", "-D", l.path("data"), "-U", adminName,
		"--auth=scram-sha-256", "--pwfile="+password, "--encoding=UTF8", "--locale=C",
		"--locale-provider=icu", "--icu-locale=en-US", "--wal-segsize=1")
	if err = errors.Join(err, os.Remove(password)); err != nil {
		return err
	}
	role := fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'\n", userName, l.userPassword)
	return l.run(ctx, role, filepath.Join(bin, "postgres"), "--single", "-D", l.path("data"), "postgres")
}

// copyPostgres creates the data of a standby, as a copy of the primary.
func copyPostgres(ctx context.Context, l, primary *local, bin string) error {
	l.userPassword, l.adminPassword = primary.userPassword, primary.adminPassword
	passwords, err := l.write("pgpass", fmt.Sprintf("*:*:*:%s:%s\n", adminName, primary.adminPassword))
	if err != nil {
		return err
	}
	source := fmt.Sprintf("host=127.0.0.1 port=%d user=%s passfile=%s", primary.port, adminName, passwords)
	return l.run(ctx, "", filepath.Join(bin, "pg_basebackup"), "--dbname="+source, "--pgdata="+l.path("data"),
		"--write-recovery-conf", "--checkpoint=fast", "--no-sync")
}

func configurePostgres(l *local) error {
	access, tls := "host", []string{"ssl = off"}
	if l.files != nil {
		access, tls = "hostssl", []string{
			"ssl = on", "ssl_ca_file = '" + l.files.ca + "'",
			"ssl_cert_file = '" + l.files.serverCert + "'", "ssl_key_file = '" + l.files.serverKey + "'",
		}
	}
	method := "127.0.0.1/32 scram-sha-256"
	if l.opts.TLS == TLSMutual {
		method += " clientcert=verify-ca"
	}
	hba, err := l.write("pg_hba.conf", fmt.Sprintf("local all all scram-sha-256\n%s all all %s\n%[1]s replication "+
		"%[3]s %[2]s\n", access, method, adminName))
	if err != nil {
		return err
	}
	lines := append([]string{
		"listen_addresses = '127.0.0.1'",
		"port = " + strconv.Itoa(l.port),
		"unix_socket_directories = '" + l.path("conf") + "'",
		"hba_file = '" + hba + "'",
		"max_connections = 200",
		"shared_buffers = 32MB",
		"min_wal_size = 2MB",
		// If the server were killed, segments in /dev/shm would remain.
		"dynamic_shared_memory_type = mmap",
		"log_line_prefix = '%m [%p] '",
	}, tls...)
	if l.opts.NoSync {
		lines = append(lines, "fsync = off", "full_page_writes = off")
	}
	lines = append(lines, l.opts.Config...)
	path := l.path("data", "postgresql.conf")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return l.own(path)
}

// probePostgres begins a session without TLS. A server that is starting or recovering answers
// "cannot connect now". A server that asks for a password, or refuses a session without TLS, is
// ready.
func probePostgres(conn net.Conn) error {
	body := binary.BigEndian.AppendUint32(nil, 3<<16) // protocol 3.0
	body = append(body, "user\x00"+adminName+"\x00database\x00postgres\x00\x00"...)
	message := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	if _, err := conn.Write(append(message, body...)); err != nil {
		return err
	}
	answer := make([]byte, 1024)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	if text := string(answer[:n]); strings.HasPrefix(text, "E") && strings.Contains(text, "C57P03\x00") {
		return errors.New("it is starting")
	}
	return nil
}
