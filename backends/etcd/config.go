package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/tenure-go/tenure/core/driver"
)

// Open opens a namespace with a new client, which Close closes. Unless c specifies otherwise, the
// client logs nothing, redials a broken connection at least once a second, and detects a dead
// connection with a watch within 13 s. Open ignores c.Context.
func Open(ctx context.Context, c clientv3.Config, namespace string, o *Options) (*Backend, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkUsers(c.Endpoints); err != nil {
		return nil, err
	}
	if !opts.Insecure {
		if err := checkTransport(&c); err != nil {
			return nil, err
		}
	}
	st, err := dial(ctx, c, opts)
	if err != nil {
		return nil, opening(namespace, err)
	}
	return open(ctx, st, namespace, opts, nil)
}

func dial(ctx context.Context, c clientv3.Config, o *Options) (*store, error) {
	withConfigDefaults(&c)
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end) // ctx ends the client only while dial runs
	defer stop()
	c.Context = life
	fail := func(err error) (*store, error) {
		end()
		return nil, fmt.Errorf("cannot reach etcd at %.200s: %w", strings.Join(c.Endpoints, ", "), err)
	}
	if c.Username != "" {
		if err := reach(ctx, c); err != nil {
			return fail(err)
		}
	}
	client, err := clientv3.New(c)
	if err != nil {
		return fail(err)
	}
	st, err := connect(ctx, client, o)
	if err != nil {
		_, err = fail(err)
		return nil, errors.Join(err, closed(client))
	}
	st.release = func() error {
		end()
		return closed(client)
	}
	return st, nil
}

func withConfigDefaults(c *clientv3.Config) {
	if c.DialKeepAliveTime == 0 {
		c.DialKeepAliveTime, c.DialKeepAliveTimeout = 10*time.Second, 3*time.Second
	}
	if c.Logger == nil && c.LogConfig == nil {
		c.Logger = zap.NewNop()
	}
	quick := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
			MaxDelay: time.Second},
		MinConnectTimeout: 3 * time.Second,
	})
	own := []grpc.DialOption{quick}
	if c.TLS != nil && c.TLS.ServerName != "" { // without it the client expects the endpoint's host
		own = append(own, grpc.WithAuthority(c.TLS.ServerName))
	}
	c.DialOptions = append(own, c.DialOptions...)
}

// checkUsers refuses endpoints that contain a user, because messages contain the endpoints and
// etcd's client ignores the user.
func checkUsers(endpoints []string) error {
	for i, e := range endpoints {
		if strings.Contains(e, "@") && !strings.HasPrefix(e, "unix") { // a socket's name may contain "@"
			return fmt.Errorf("tenure: %w: endpoint %d of etcd holds a user: write it as https://host:port, the user "+
				"goes into Username, the password into Password", driver.ErrInvalid, i+1)
		}
	}
	return nil
}

// checkTransport refuses a connection to another host in plaintext or with unverified TLS. All
// endpoints must have the same scheme, because with credentials, most calls use the first
// endpoint's scheme for all endpoints, but some use each endpoint's own.
func checkTransport(c *clientv3.Config) error {
	if len(c.Endpoints) == 0 {
		return fmt.Errorf("tenure: %w: no endpoint of etcd: set Endpoints", driver.ErrInvalid)
	}
	unchecked := c.TLS != nil && c.TLS.InsecureSkipVerify && c.TLS.VerifyConnection == nil &&
		c.TLS.VerifyPeerCertificate == nil
	for i, e := range c.Endpoints {
		if encrypted(c, e) != encrypted(c, c.Endpoints[0]) {
			return fmt.Errorf("tenure: %w: of etcd's endpoints the first and number %d differ in their schemes: use "+
				"https for all", driver.ErrInvalid, i+1)
		}
		if (unchecked || !encrypted(c, e)) && !loopback(e) {
			return fmt.Errorf("tenure: %w: the connection to etcd at %.80q would not be protected: use https and "+
				"check the certificate, or set Insecure", driver.ErrInvalid, e)
		}
	}
	return nil
}

func encrypted(c *clientv3.Config, endpoint string) bool {
	scheme, _, ok := strings.Cut(endpoint, "://")
	return strings.EqualFold(scheme, "https") || scheme == "unixs" || !ok && c.TLS != nil
}

func loopback(endpoint string) bool {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	if !ok {
		rest = endpoint
	}
	if strings.HasPrefix(scheme, "unix") || strings.HasPrefix(endpoint, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(rest)
	if err != nil {
		host = rest
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Settings are the Opener's options in a configuration.
type Settings struct {
	Endpoints    []string      `json:"endpoints" yaml:"endpoints"` // such as https://etcd-0:2379
	Username     string        `json:"username" yaml:"username"`
	Password     driver.Secret `json:"password" yaml:"password"`
	PasswordFile string        `json:"password_file" yaml:"password_file"` // read at each authentication; takes precedence over password
	CAFile       string        `json:"ca_file" yaml:"ca_file"`             // PEM; default: the system's
	CertFile     string        `json:"cert_file" yaml:"cert_file"`         // PEM, with key_file: the client's certificate
	KeyFile      string        `json:"key_file" yaml:"key_file"`
	// expected in the certificate; default: the endpoint's host
	ServerName string `json:"server_name" yaml:"server_name"`
	Namespace  string `json:"namespace" yaml:"namespace"` // such as "orders"
	Options    `yaml:",inline"`

	certificate *driver.Certificate // from TLS files
}

// Opener returns the opener for this backend, which is called "etcd" in configurations.
func Opener() driver.Opener { return driver.NewOpener(backendName, openSettings) }

func openSettings(ctx context.Context, s *Settings) (*Backend, error) {
	c, err := s.config()
	if err != nil {
		return nil, err
	}
	b, err := Open(ctx, c, s.Namespace, &s.Options)
	if err == nil {
		b.Certificate = s.certificate
	}
	return b, err
}

func (s *Settings) config() (clientv3.Config, error) {
	c := clientv3.Config{Endpoints: s.Endpoints, Username: s.Username, Password: string(s.Password)}
	wrong := func(what string, err error) (clientv3.Config, error) {
		return c, fmt.Errorf("tenure: %w: etcd's %s: %w", driver.ErrInvalid, what, err)
	}
	if s.PasswordFile != "" {
		text, err := driver.ReadSecret(s.PasswordFile)
		if err != nil {
			return wrong("password_file", err)
		}
		c.Password = strings.TrimSpace(text)
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(s.authenticate))
	}
	if (c.Username == "") != (c.Password == "") {
		return wrong("username", errors.New("it goes with a password, and a password with it"))
	}
	s.certificate = &driver.Certificate{}
	files := driver.TLSFiles{CA: s.CAFile, Cert: s.CertFile, Key: s.KeyFile, ServerName: s.ServerName}
	read, first, err := driver.TLSReader(files.Config).Renewed(s.certificate)
	if err != nil {
		return wrong("files of TLS", err)
	}
	if s.CAFile != "" || s.CertFile != "" || len(s.Endpoints) > 0 && strings.HasPrefix(s.Endpoints[0], "https://") {
		c.TLS = first
	}
	if len(s.Endpoints) > 0 && encrypted(&c, s.Endpoints[0]) {
		c.DialOptions = append(c.DialOptions, grpc.WithTransportCredentials(renewing{credentials.NewTLS(first), read}))
	}
	return c, nil
}

// authenticate puts the file's current password into authentication requests.
func (s *Settings) authenticate(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	if a, ok := req.(*etcdserverpb.AuthenticateRequest); ok {
		text, err := driver.ReadSecret(s.PasswordFile)
		if err != nil {
			return fmt.Errorf("password_file: %w", err)
		}
		req = &etcdserverpb.AuthenticateRequest{Name: a.Name, Password: strings.TrimSpace(text)}
	}
	return next(ctx, method, req, reply, cc, opts...)
}

// renewing reads the TLS files for each connection.
type renewing struct {
	credentials.TransportCredentials
	read driver.TLSReader
}

func (r renewing) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, err := r.read()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(c).ClientHandshake(ctx, authority, raw)
}

func (r renewing) Clone() credentials.TransportCredentials { return r }
