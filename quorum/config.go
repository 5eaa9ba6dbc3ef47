package quorum

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/tenure-go/tenure/core"
)

// Config describes one member of a cluster. Cluster, Name, Dir and Members (or Domain and Size) are
// required. Cluster, Members and Quota are the same for all members.
type Config struct {
	// Cluster is the cluster's name. A name has 1 to 64 letters, digits, dots, dashes and underscores.
	// Start refuses a data folder of a cluster with another name.
	Cluster string `yaml:"cluster"`

	// Name is the name of this process in Members.
	Name string `yaml:"name"`

	// Dir is this member's data folder, which Start creates. Only one member can use the folder.
	Dir string `yaml:"dir"`

	// Members are the cluster's initial members, in any order: 1 to 7. Use 3 or 5.
	Members []Address `yaml:"members"`

	// Domain is the DNS name from which Start and the other functions read Members, if Members is
	// empty. For members, Domain has SRV records _etcd-server-ssl._tcp, and for their clients
	// _etcd-client-ssl._tcp, both without -ssl if there is no TLS. Each name has exactly Size records,
	// whose targets are hosts below Domain: a member named "a" is the host a.Domain. Resolver looks
	// the records up within 5 s. Default (nil): net.DefaultResolver.
	Domain   string   `yaml:"domain"`
	Size     int      `yaml:"size"`
	Resolver Resolver `yaml:"-"`

	// PeerTLS protects the connections between members, and ClientTLS protects the connections of
	// clients. Both are required unless all addresses in Members are loopback addresses. Any holder of
	// a certificate that ClientTLS.CAFile has signed can read and write everything.
	PeerTLS   TLS `yaml:"peer_tls"`
	ClientTLS TLS `yaml:"client_tls"`

	// Create lets Start create a member in an empty data folder. Set Create for the first start of a
	// cluster only. Default false: an empty folder is an error, because the disk may be lost. If a
	// member's disk is lost while Create is set and the other members are down, the cluster can lose
	// acknowledged writes.
	Create bool `yaml:"create"`

	// Quota limits the size of the database, in bytes: 64 MiB to 8 GiB. Default (0) 2 GiB. If the
	// database exceeds Quota, the cluster refuses writes.
	Quota int64 `yaml:"quota"`

	// Retention is the time for which etcd keeps former revisions: 1 min to 24 h. Default (0) 5 min.
	// A process whose watch is interrupted for longer reads everything again.
	Retention time.Duration `yaml:"retention"`

	// Logger receives etcd's warnings and errors, and at level Debug its messages during Close. Each
	// message is logged at most ten times in a second. Default (nil): slog.Default().
	Logger *slog.Logger `yaml:"-"`
}

// Address contains a member's unique name, and the addresses that other processes use. Each address
// is "host:port". If host is an IP address, the member listens at this address. If host is a DNS
// name other than localhost, the member listens at all of its machine's addresses.
type Address struct {
	Name   string `yaml:"name"`
	Peer   string `yaml:"peer"`   // for other members
	Client string `yaml:"client"` // for clients, including the clients in member processes
}

// TLS names PEM files. Set all or none. Members use the certificate both as servers and as clients,
// so the certificate must name the member's host and allow both uses. Both sides of each connection
// show a certificate. Members read the certificate and the key for each connection, and the CA file
// when they start.
type TLS struct {
	CAFile   string `yaml:"ca_file"`
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

const (
	defaultQuota, minQuota, maxQuota             = 2 << 30, 64 << 20, 8 << 30
	defaultRetention, minRetention, maxRetention = 5 * time.Minute, time.Minute, 24 * time.Hour
	maxMembers                                   = 7
	defragmentAbove                              = 100 // MiB of free space in the database at a start
)

var (
	names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	hosts = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$`)
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("tenure: %w: quorum: %w", core.ErrInvalid, fmt.Errorf(format, args...))
}

// checkedClient returns a valid copy of c for a process that need not be a member.
func (c Config) checkedClient(ctx context.Context) (Config, error) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if !names.MatchString(c.Cluster) {
		return c, invalid("Cluster %.80q: use 1 to 64 letters, digits, dots, dashes and underscores", c.Cluster)
	}
	if err := c.discover(ctx); err != nil {
		return c, err
	}
	if err := c.checkMembers(); err != nil {
		return c, err
	}
	if err := c.checkTLS(c.ClientTLS, "", time.Now(), x509.ExtKeyUsageClientAuth); err != nil {
		return c, invalid("ClientTLS: %w", err)
	}
	return c, nil
}

// checked returns a valid copy of c with the defaults, and this member's address.
func (c Config) checked(ctx context.Context) (_ Config, self Address, err error) {
	if c.Quota == 0 {
		c.Quota = defaultQuota
	}
	if c.Retention == 0 {
		c.Retention = defaultRetention
	}
	if c, err = c.checkedClient(ctx); err != nil {
		return c, self, err
	}
	switch {
	case c.Dir == "":
		return c, self, invalid("no data folder: set Dir")
	case c.Quota < minQuota || c.Quota > maxQuota:
		return c, self, invalid("Quota of %d bytes: use 64 MiB to 8 GiB", c.Quota)
	case c.Retention < minRetention || c.Retention > maxRetention:
		return c, self, invalid("Retention of %v: use %v to %v", c.Retention, minRetention, maxRetention)
	}
	for _, m := range c.Members {
		if m.Name == c.Name {
			self = m
		}
	}
	if self.Name == "" {
		return c, self, invalid("Name %.80q is not in Members: add this process, or correct Name", c.Name)
	}
	if err := c.checkTLS(c.PeerTLS, self.Peer, time.Now(), both...); err != nil {
		return c, self, invalid("PeerTLS: %w", err)
	}
	if err := c.checkTLS(c.ClientTLS, self.Client, time.Now(), both...); err != nil {
		return c, self, invalid("ClientTLS: %w", err)
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return c, self, invalid("Dir: %w", err)
	}
	return c, self, nil
}

func (c *Config) checkMembers() error {
	if len(c.Members) == 0 || len(c.Members) > maxMembers {
		return invalid("%d Members: name 1 to %d", len(c.Members), maxMembers)
	}
	used := map[string]bool{}
	for _, m := range c.Members {
		if !names.MatchString(m.Name) {
			return invalid("member %.80q: use a name like that of a cluster", m.Name)
		}
		for _, s := range []string{m.Name, m.Peer, m.Client} {
			if used[s] {
				return invalid("%.80q occurs twice in Members: give each member its own name and addresses", s)
			}
			used[s] = true
		}
		for _, a := range []string{m.Peer, m.Client} {
			host, port, err := net.SplitHostPort(a)
			n, _ := strconv.Atoi(port)
			ip := net.ParseIP(host)
			switch {
			case err != nil || n < 1 || n > 65535 || ip == nil && !hosts.MatchString(host):
				return invalid("address %.80q of member %q: use host:port", a, m.Name)
			case ip.IsUnspecified():
				return invalid("address %q of member %q: use the address to which others connect", a, m.Name)
			}
		}
	}
	return nil
}

// hostOf returns the host of a checked address, and reports whether it is a loopback address.
func hostOf(address string) (host string, ip net.IP, loopback bool) {
	host, _, _ = net.SplitHostPort(address)
	ip = net.ParseIP(host)
	return host, ip, host == "localhost" || ip.IsLoopback()
}

// both are the uses of a member's certificate.
var both = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

// checkTLS refuses files with which no other process would accept a connection at the given time.
// Clients have no address.
func (c *Config) checkTLS(t TLS, address string, at time.Time, uses ...x509.ExtKeyUsage) error {
	if t == (TLS{}) {
		for _, m := range c.Members {
			for _, a := range []string{m.Peer, m.Client} {
				if _, _, loopback := hostOf(a); !loopback {
					return fmt.Errorf("%s is not a loopback address: set CAFile, CertFile and KeyFile", a)
				}
			}
		}
		return nil
	}
	text, err := os.ReadFile(t.CAFile)
	if err != nil {
		return fmt.Errorf("CAFile: %w", err)
	}
	roots, rest := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return errors.New("CAFile contains no certificate")
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return fmt.Errorf("CertFile and KeyFile: %w", err)
	}
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			rest.AddCert(c)
		}
	}
	host, _, _ := hostOf(address)
	for _, use := range uses {
		o := x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: rest, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{use}}
		if _, err := pair.Leaf.Verify(o); err != nil {
			return fmt.Errorf("others would refuse CertFile: %w", err)
		}
	}
	return nil
}

func (t TLS) info() transport.TLSInfo {
	return transport.TLSInfo{TrustedCAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ClientCertAuth: t != TLS{}}
}

func (t TLS) url(address string) string {
	if t == (TLS{}) {
		return "http://" + address
	}
	return "https://" + address
}

// urls returns the URLs to which other processes connect, and at which this member listens.
func (t TLS) urls(address string) (advertise, listen []url.URL) {
	scheme, _, _ := strings.Cut(t.url(""), ":")
	at := address
	if _, ip, loopback := hostOf(address); ip == nil && !loopback { // etcd listens at no other name
		at = "0.0.0.0" + address[strings.LastIndexByte(address, ':'):]
	}
	return []url.URL{{Scheme: scheme, Host: address}}, []url.URL{{Scheme: scheme, Host: at}}
}

// embedded returns etcd's configuration. The argument initial has the form of --initial-cluster.
func (c *Config) embedded(self Address, initial, state string, log *zap.Logger) *embed.Config {
	e := embed.NewConfig()
	e.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	e.Name, e.Dir, e.InitialClusterToken = c.Name, c.Dir, c.Cluster
	e.InitialCluster, e.ClusterState = initial, state
	e.PeerTLSInfo, e.ClientTLSInfo = c.PeerTLS.info(), c.ClientTLS.info()
	e.AuthToken, e.EnableGRPCGateway = "", false // certificates decide, not users
	e.QuotaBackendBytes, e.BootstrapDefragThresholdMegabytes = c.Quota, defragmentAbove
	e.AutoCompactionMode, e.AutoCompactionRetention = embed.CompactorModePeriodic, c.Retention.String()
	e.AdvertisePeerUrls, e.ListenPeerUrls = c.PeerTLS.urls(self.Peer)
	e.AdvertiseClientUrls, e.ListenClientUrls = c.ClientTLS.urls(self.Client)
	return e
}

// initial returns the members in the form of --initial-cluster.
func (c *Config) initial() string {
	var all []string
	for _, m := range c.Members {
		all = append(all, m.Name+"="+c.PeerTLS.url(m.Peer))
	}
	return strings.Join(all, ",")
}
