package servers

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
)

// DSN describes how to reach one database as one user. The methods of a DSN do not change it but
// return changed copies, so a DSN is safe for concurrent use. Every format prints a DSN without its
// password. Only Reveal and Password return the password.
type DSN struct {
	kind     Kind
	network  string // tcp, or unix
	addr     string // host:port; for unix the socket's path (PostgreSQL: its directory and port)
	user     string
	password string
	database string
	params   url.Values
}

// Addr returns the server's host:port.
func (d DSN) Addr() string { return d.addr }

// User returns the user's name.
func (d DSN) User() string { return d.user }

// Password returns the user's password.
func (d DSN) Password() string { return d.password }

// Name returns the database's name.
func (d DSN) Name() string { return d.database }

// At returns the DSN with another host:port over TCP, such as a proxy's address.
func (d DSN) At(addr string) DSN {
	d.network, d.addr = "tcp", addr
	return d
}

// As returns the DSN for another user.
func (d DSN) As(user, password string) DSN {
	d.user, d.password = user, password
	return d
}

// Database returns the DSN for another database.
func (d DSN) Database(name string) DSN {
	d.database = name
	return d
}

// With returns the DSN with a driver parameter set, such as default_query_exec_mode=simple_protocol
// for pgx.
func (d DSN) With(name, value string) DSN {
	d.params = maps.Clone(d.params)
	if d.params == nil {
		d.params = url.Values{}
	}
	d.params.Set(name, value)
	return d
}

// Reveal returns the DSN with its password, in the form that the driver needs. For PostgreSQL
// (pgx), the form is a URL. For MariaDB (go-sql-driver/mysql), the form is
// "user:password@tcp(host:port)/database?...". For etcd, Consul, Redis, ZooKeeper, S3 and GCS, the
// form is "user:password@host:port" or "host:port". For TLS, the URL contains the paths of the
// certificate files. A MySQL DSN cannot contain paths, so pass [Server.TLSConfig] to
// mysql.RegisterTLSConfig and set the parameter tls.
func (d DSN) Reveal() string { return d.format(d.password) }

// String returns the DSN with the password replaced.
func (d DSN) String() string { return d.format("xxxxx") }

// Format prints the result of String for every verb.
func (d DSN) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, d.String()) }

// MarshalText returns the result of String, for JSON and structured logs.
func (d DSN) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d DSN) format(password string) string {
	if slices.Contains([]Kind{ZooKeeper, Etcd, Consul, Redis, Sentinel, S3, GCS}, d.kind) {
		if d.user == "" {
			return d.addr
		}
		return fmt.Sprintf("%s:%s@%s", d.user, password, d.addr)
	}
	if d.kind == MariaDB {
		s := fmt.Sprintf("%s:%s@%s(%s)/%s", d.user, password, d.network, d.addr, url.PathEscape(d.database))
		if len(d.params) > 0 {
			s += "?" + d.params.Encode()
		}
		return s
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(d.user, password), Path: "/" + d.database}
	params := maps.Clone(d.params)
	if d.network == "unix" {
		if params == nil {
			params = url.Values{}
		}
		host, port, _ := net.SplitHostPort(d.addr)
		params.Set("host", host)
		params.Set("port", port)
	} else {
		u.Host = d.addr
	}
	u.RawQuery = params.Encode()
	return u.String()
}

// postgresDSN returns a DSN without a user, with the TLS files in files.
func postgresDSN(addr string, files *certificates) DSN {
	d := DSN{kind: Postgres, network: "tcp", addr: addr, database: "postgres"}
	if files == nil {
		return d.With("sslmode", "disable")
	}
	d = d.With("sslmode", "verify-full").With("sslrootcert", files.ca)
	if files.clientKey != "" {
		d = d.With("sslcert", files.clientCert).With("sslkey", files.clientKey)
	}
	return d
}

// parseDSN parses a DSN from the environment. The errors do not contain the text.
func parseDSN(kind Kind, text string) (DSN, error) {
	switch kind {
	case MariaDB:
		return parseMySQL(text)
	case ZooKeeper:
		return parseZooKeeper(text)
	default: // the others are URLs
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") || u.Hostname() == "" {
		return DSN{}, errors.New("write it as postgres://user:password@host:port/database")
	}
	d := DSN{kind: kind, network: "tcp", addr: u.Host, user: u.User.Username(),
		database: strings.TrimPrefix(u.Path, "/"), params: u.Query()}
	d.password, _ = u.User.Password()
	if u.Port() == "" {
		d.addr = net.JoinHostPort(u.Hostname(), "5432")
	}
	if d.database == "" {
		d.database = "postgres"
	}
	return d, nil
}

// parseZooKeeper parses "user:password@host:port,host:port". If everyone may use the nodes, the
// text contains no user.
func parseZooKeeper(text string) (DSN, error) {
	d := DSN{kind: ZooKeeper, network: "tcp", addr: text}
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		d.user, d.password, _ = strings.Cut(text[:at], ":")
		d.addr = text[at+1:]
	}
	for server := range strings.SplitSeq(d.addr, ",") {
		if _, _, err := net.SplitHostPort(server); err != nil {
			return DSN{}, errors.New("write it as host:port,host:port, with user:password@ before it where nodes are " +
				"not open to all")
		}
	}
	return d, nil
}

func parseMySQL(text string) (DSN, error) {
	wrong := errors.New("write it as user:password@tcp(host:port)/database")
	text, query, _ := strings.Cut(text, "?")
	slash := strings.LastIndexByte(text, '/')
	at := strings.LastIndexByte(text[:max(slash, 0)], '@')
	if at < 0 {
		return DSN{}, wrong
	}
	network, addr, ok := strings.Cut(text[at+1:slash], "(")
	addr, closed := strings.CutSuffix(addr, ")")
	params, err := url.ParseQuery(query)
	if !ok || !closed || network != "tcp" || err != nil {
		return DSN{}, wrong
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		addr = net.JoinHostPort(addr, "3306")
	}
	d := DSN{kind: MariaDB, network: network, addr: addr, database: text[slash+1:], params: params}
	d.user, d.password, _ = strings.Cut(text[:at], ":")
	return d, nil
}
