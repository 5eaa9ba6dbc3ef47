package zookeeper

import (
	"crypto/tls"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/core/driver"
)

// defaultRoot is the parent node of namespaces.
const defaultRoot = "/tenure"

// defaultPort is ZooKeeper's client port.
const defaultPort = "2181"

// Options configure Open. The zero value and nil are valid.
type Options struct {
	// Create lets Open create the namespace's directories and identity if there are none. Without
	// Create, a missing identity is an error, because the store may have been wiped (rule I1).
	Create bool `json:"create" yaml:"create"`

	// Root is the parent node of namespaces. Default ("") "/tenure". Each part is a "/" and a name
	// of letters, digits, "_", "-" and ".". With Create, Open creates a missing Root.
	Root string `json:"root" yaml:"root"`

	// User and Password are used for digest authentication. If they are set, only this user and the
	// administrators have permissions on new nodes. Without them, every user has these permissions.
	// Neither value may contain a colon. The protocol sends the password in clear text, so use TLS.
	User     string        `json:"user" yaml:"user"`
	Password driver.Secret `json:"password" yaml:"password"`

	// Admins are granted all permissions on nodes created from now on. Each is a "scheme:id", such
	// as "digest:admin:hash" or "x509:CN=admin". If Admins is set, no other user may change ACLs or
	// remove a permanent record, such as a shard's.
	Admins []string `json:"admins" yaml:"admins"`

	// TLS, if not nil, is the TLS configuration of connections. If ServerName is empty, the
	// server's host is used. Do not change TLS while the backend is open.
	TLS *tls.Config `json:"-" yaml:"-"`

	files        driver.TLSReader // instead of TLS, for each connection; nil: TLS
	passwordFile string           // read for each connection, in addition to Password; empty: none

	// Insecure allows connections to other hosts without TLS or without certificate checks, whether
	// or not User is set. Default false: Open refuses such a connection, because it carries tokens
	// and the application's data.
	Insecure bool `json:"insecure" yaml:"insecure"`

	// In tests, this function replaces the dialer.
	dial dialer
}

var rootName = regexp.MustCompile(`^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$`)

func (o *Options) withDefaults() (*Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	if c.Root == "" {
		c.Root = defaultRoot
	}
	if !rootName.MatchString(c.Root) || len(c.Root) > 255 {
		return nil, fmt.Errorf("tenure: %w: root %.80q: write it as %s, at most 255 bytes", driver.ErrInvalid, c.Root,
			defaultRoot)
	}
	if (c.User == "") != (c.Password == "") {
		return nil, fmt.Errorf("tenure: %w: digest authentication needs a user and a password, or neither",
			driver.ErrInvalid)
	}
	if strings.Contains(c.User, ":") || strings.Contains(string(c.Password), ":") {
		return nil, fmt.Errorf("tenure: %w: a user or password of digest authentication has a colon: use one without",
			driver.ErrInvalid)
	}
	if _, err := c.rights(); err != nil {
		return nil, err
	}
	return &c, nil
}

// maxAdmins is the maximum number of administrators, which limits the length of each node's ACL in
// a packet.
const maxAdmins = 4

func (o *Options) rights() (rights, error) {
	r := rights{own: zk.WorldACL(0)}
	if o.User != "" {
		r.own = zk.DigestACL(0, o.User, string(o.Password))
	}
	if o.passwordFile != "" {
		r.own = zk.AuthACL(0) // of all passwords that the link has proven
	}
	if len(o.Admins) > maxAdmins {
		return r, fmt.Errorf("tenure: %w: %d administrators: name at most %d", driver.ErrInvalid, len(o.Admins),
			maxAdmins)
	}
	for _, a := range o.Admins {
		scheme, id, ok := strings.Cut(a, ":")
		if !ok || scheme == "" || id == "" || len(a) > 255 {
			return r, fmt.Errorf("tenure: %w: an administrator is not written as scheme:id, such as digest:admin:hash",
				driver.ErrInvalid)
		}
		r.admins = append(r.admins, zk.ACL{Scheme: scheme, ID: id})
	}
	return r, nil
}

// checkServers checks the servers, and adds the default port where necessary.
func (o *Options) checkServers(servers []string) ([]string, error) {
	if len(servers) == 0 {
		return nil, fmt.Errorf("tenure: %w: no servers: name at least one as host:port", driver.ErrInvalid)
	}
	out := make([]string, len(servers))
	for i, s := range servers {
		if strings.ContainsAny(s, "/@, ") || s == "" {
			return nil, fmt.Errorf("tenure: %w: server %d is not written as host:port; a root goes into Options.Root, "+
				"a user into Options.User", driver.ErrInvalid, i+1)
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			host, port = strings.Trim(s, "[]"), defaultPort
		}
		out[i] = net.JoinHostPort(host, port)
		if !o.Insecure && !o.protected() && !loopback(host) {
			return nil, fmt.Errorf("tenure: %w: the connection to ZooKeeper at %.80q would not be protected: set "+
				"Options.TLS and let it check the certificate, or set Options.Insecure", driver.ErrInvalid, host)
		}
	}
	return out, nil
}

// protected reports whether connections are encrypted and the server's certificate is checked.
func (o *Options) protected() bool {
	c := o.TLS
	return c != nil && (!c.InsecureSkipVerify || c.VerifyConnection != nil || c.VerifyPeerCertificate != nil)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
