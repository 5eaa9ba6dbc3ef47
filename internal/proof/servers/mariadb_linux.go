package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

func mariadbRecipe() (recipe, error) {
	missing := func(what string) (recipe, error) {
		return recipe{}, unavailable(MariaDB, "no %s: run make servers, or set %s", what, MariaDB.variable())
	}
	path, err := lookPath("mariadbd")
	if err != nil {
		return missing("mariadbd in the PATH or /usr/sbin")
	}
	tables, err := systemTables()
	if err != nil {
		return missing(err.Error())
	}
	return recipe{
		accounts:  []string{"mysql", "nobody"},
		prepare:   func(ctx context.Context, l *local) error { return prepareMariaDB(ctx, l, path, tables) },
		configure: configureMariaDB,
		command: func(l *local) (string, []string) {
			return path, []string{"--defaults-file=" + l.path("conf", "my.cnf")}
		},
		probe: probeMariaDB,
		dsns: func(l *local) (user, admin, local DSN) {
			user = DSN{kind: MariaDB, network: "tcp", addr: l.addr()}.As(userName, l.userPassword)
			admin = user.As(adminName, l.adminPassword)
			local = admin
			local.network, local.addr = "unix", l.path("conf", "socket")
			return user, admin, local
		},
	}, nil
}

// lookPath is like exec.LookPath, but also searches Debian's folders that are not in the PATH of
// ordinary users.
func lookPath(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}

// systemTables finds the statements that create the system tables. Usually, the script
// mariadb-install-db runs these statements. Because that script needs another package, the server
// runs the statements itself.
func systemTables() ([]string, error) {
	for _, share := range []string{"/usr/share/mysql", "/usr/share/mariadb"} {
		var paths []string
		for _, name := range []string{"mysql_system_tables", "mysql_performance_tables", "mysql_system_tables_data",
			"maria_add_gis_sp_bootstrap"} {
			path := filepath.Join(share, name+".sql")
			if _, err := os.Stat(path); err == nil {
				paths = append(paths, path)
			}
		}
		if len(paths) == 4 {
			return paths, nil
		}
	}
	return nil, errors.New("statements for the system's tables in /usr/share/mysql")
}

func prepareMariaDB(ctx context.Context, l *local, path string, tables []string) error {
	if err := os.Mkdir(l.path("data", "mysql"), 0o700); err != nil {
		return err
	}
	if err := l.own(l.path("data", "mysql")); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("USE mysql;\nSET @auth_root_socket=NULL;\n")
	for _, name := range tables {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	require := ""
	if l.opts.TLS == TLSMutual {
		require = " REQUIRE X509"
	}
	// The administrator also connects through the socket, without a certificate.
	fmt.Fprintf(&b, `DELETE FROM mysql.global_priv WHERE User <> 'mariadb.sys';
FLUSH PRIVILEGES;
CREATE USER %[1]s@'%%' IDENTIFIED BY '%[2]s';
GRANT ALL ON *.* TO %[1]s@'%%' WITH GRANT OPTION;
CREATE USER %[3]s@'%%' IDENTIFIED BY '%[4]s'%[5]s;
GRANT ALL ON `+"`tenure\\_test\\_%%`"+`.* TO %[3]s@'%%';
`, adminName, l.adminPassword, userName, l.userPassword, require)
	return l.run(ctx, b.String(), path, "--no-defaults", "--bootstrap", "--basedir=/usr", "--datadir="+l.path("data"),
		"--tmpdir="+l.path("conf"), // in a shared folder, another starting server would remove temporary tables
		"--lc-messages-dir="+filepath.Dir(tables[0]), "--innodb-flush-method=nosync", "--innodb-log-file-size=16M",
		"--enforce-storage-engine=", "--max-allowed-packet=8M", "--silent-startup")
}

func configureMariaDB(l *local) error {
	lines := []string{
		"[mysqld]",
		"basedir = /usr",
		"datadir = " + l.path("data"),
		"tmpdir = " + l.path("conf"),
		"bind-address = 127.0.0.1",
		"port = " + strconv.Itoa(l.port),
		"socket = " + l.path("conf", "socket"),
		"pid-file = " + l.path("conf", "pid"),
		"character-set-server = utf8mb4",
		"skip-name-resolve",
		"max-connections = 200",
		"innodb-buffer-pool-size = 64M",
		"innodb-log-file-size = 16M",
	}
	if l.files != nil {
		lines = append(lines, "require-secure-transport = ON", "ssl-ca = "+l.files.ca,
			"ssl-cert = "+l.files.serverCert, "ssl-key = "+l.files.serverKey)
	}
	if l.opts.NoSync {
		lines = append(lines, "innodb-flush-log-at-trx-commit = 2", "innodb-flush-method = nosync")
	}
	_, err := l.write("my.cnf", strings.Join(append(lines, l.opts.Config...), "\n")+"\n")
	return err
}

// probeMariaDB waits for the server's greeting. In the greeting, the protocol version follows a
// four-byte header.
func probeMariaDB(conn net.Conn) error {
	greeting := make([]byte, 512)
	n, err := conn.Read(greeting)
	if err != nil {
		return err
	}
	if n < 5 || greeting[4] != 10 {
		return fmt.Errorf("it greets with %q", greeting[:n])
	}
	return nil
}
