package consul

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/core/driver"
)

// Config contains Consul's address and credentials. The zero Config uses the CONSUL_HTTP_*
// environment variables or, if none are set, the agent on this host. A field that is set overrides
// its variable.
type Config struct {
	// host:port, http://, https:// or unix://; a path after the host belongs to a proxy
	Address string `json:"address" yaml:"address"`
	// Addresses replaces Address with several agents or servers of one datacenter. If the address
	// in use fails or does not answer heartbeats, the Backend switches to another one.
	Addresses  []string      `json:"addresses" yaml:"addresses"`
	Datacenter string        `json:"datacenter" yaml:"datacenter"` // default: the agent's datacenter
	Token      driver.Secret `json:"token" yaml:"token"`           // an ACL token
	// read for each request; takes precedence over Token
	TokenFile string `json:"token_file" yaml:"token_file"`
	TLS       bool   `json:"tls" yaml:"tls"`             // the same as an https:// address
	CAFile    string `json:"ca_file" yaml:"ca_file"`     // PEM; default: the system's
	CertFile  string `json:"cert_file" yaml:"cert_file"` // PEM, with KeyFile: the client's certificate
	KeyFile   string `json:"key_file" yaml:"key_file"`
	// expected in the server's certificate; default: the host of Address
	ServerName string `json:"server_name" yaml:"server_name"`
}

// Open opens a namespace with new clients, which Close closes. The package documentation describes
// the clients' connections.
func Open(ctx context.Context, c Config, namespace string, o *Options) (*Backend, error) {
	opts := Options{}
	if o != nil {
		opts = *o
	}
	cert := &driver.Certificate{}
	all, err := c.slots(opts.Insecure, cert)
	if err != nil {
		return nil, err
	}
	if c.TokenFile != "" && opts.Token == nil {
		opts.Token = tokenFile(c.TokenFile)
	}
	b, err := open(ctx, all, namespace, &opts)
	if err == nil {
		b.Certificate = cert
	}
	return b, err
}

// Each address has its own slots, and each slot has a client with one connection.
func (c *Config) slots(insecure bool, cert *driver.Certificate) ([]*slots, error) {
	addresses := c.Addresses
	switch {
	case len(addresses) == 0:
		addresses = []string{c.Address}
	case c.Address != "":
		return nil, fmt.Errorf("tenure: %w: two ways to reach consul: set Address or Addresses, not both", driver.ErrInvalid)
	}
	all := make([]*slots, len(addresses))
	for i, address := range addresses {
		at := *c
		if at.Address = address; address == "" && len(addresses) > 1 {
			return nil, fmt.Errorf("tenure: %w: number %d of the addresses of consul is empty", driver.ErrInvalid, i+1)
		}
		cfg, err := at.client(insecure)
		if err != nil {
			return nil, err
		}
		scheme, socket, _ := strings.Cut(cfg.Address, "://")
		if scheme == "unix" {
			cfg.Address = "localhost" // because the client would dial the socket itself
		} else {
			socket = ""
		}
		renewed, err := renewed(cfg, cert)
		if err != nil {
			return nil, err
		}
		all[i], err = newSlots(len(addresses), func() (*slot, error) {
			own := *cfg
			own.Transport = single(dialer(socket))
			if renewed != nil {
				own.Transport.DialTLSContext = renewed.Dial(own.Transport.DialContext)
			}
			client, err := api.NewClient(&own)
			if err != nil {
				return nil, fmt.Errorf("tenure: %w: the client of consul: %w", driver.ErrInvalid, err)
			}
			own.HttpClient.Transport = lister{own.HttpClient.Transport} // the client shares HttpClient
			return &slot{client: client, drop: own.Transport.CloseIdleConnections}, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// renewed returns a function that reads the TLS files for each connection, or nil without TLS.
// Connections through a proxy keep using the files that were read first.
func renewed(cfg *api.Config, cert *driver.Certificate) (driver.TLSReader, error) {
	if cfg.Scheme != "https" {
		return nil, nil
	}
	read, _, err := driver.TLSReader(func() (*tls.Config, error) {
		if err := checkFiles(cfg.TLSConfig.CAFile, cfg.TLSConfig.CertFile, cfg.TLSConfig.KeyFile); err != nil {
			return nil, err
		}
		return api.SetupTLSConfig(&cfg.TLSConfig)
	}).Renewed(cert)
	if err != nil {
		return nil, fmt.Errorf("tenure: %w: the client of consul: %w", driver.ErrInvalid, err)
	}
	return read, nil
}

// client returns a client's configuration without a transport.
func (c *Config) client(insecure bool) (*api.Config, error) {
	cfg := api.DefaultConfig()
	if c.Address != "" {
		cfg.Address = c.Address
		if strings.HasPrefix(c.Address, "http://") { // explicit; other addresses leave CONSUL_HTTP_SSL on
			cfg.Scheme = "http"
		}
	}
	if strings.Contains(cfg.Address, "@") && !strings.HasPrefix(cfg.Address, "unix://") {
		return nil, fmt.Errorf("tenure: %w: the address of consul holds a user: write it as https://host:port, a "+
			"token goes into Token, the user of a proxy into CONSUL_HTTP_AUTH", driver.ErrInvalid)
	}
	if scheme, rest, ok := strings.Cut(cfg.Address, "://"); ok && scheme != "unix" {
		if scheme != "http" && scheme != "https" {
			return nil, fmt.Errorf("tenure: %w: the address of consul begins with %q: use http, https or unix",
				driver.ErrInvalid, scheme)
		}
		if cfg.Address = rest; scheme == "https" {
			cfg.Scheme = scheme
		}
	}
	if c.TLS {
		cfg.Scheme = "https"
	}
	if !strings.HasPrefix(cfg.Address, "unix://") { // the client splits off a path only after a scheme
		host, path, _ := strings.Cut(cfg.Address, "/")
		cfg.Address = host
		if path = strings.TrimRight(path, "/"); path != "" {
			cfg.PathPrefix = "/" + path
		}
	}
	if c.Datacenter != "" {
		cfg.Datacenter = c.Datacenter
	}
	if c.Token != "" {
		cfg.Token, cfg.TokenFile = string(c.Token), ""
	}
	if err := checkFiles(c.CAFile, c.CertFile, c.KeyFile); err != nil {
		return nil, err
	}
	tls := &cfg.TLSConfig
	for _, set := range []struct {
		to   *string
		from string
	}{{&tls.CAFile, c.CAFile}, {&tls.CertFile, c.CertFile}, {&tls.KeyFile, c.KeyFile}, {&tls.Address, c.ServerName}} {
		if set.from != "" {
			*set.to = set.from
		}
	}
	if !insecure && !local(cfg.Address) {
		switch {
		case cfg.Scheme != "https":
			return nil, fmt.Errorf("tenure: %w: consul at %s would be reached without TLS: use https, or set Insecure",
				driver.ErrInvalid, cfg.Address)
		case tls.InsecureSkipVerify:
			return nil, fmt.Errorf("tenure: %w: CONSUL_HTTP_SSL_VERIFY is off: name the CA instead, or set Insecure",
				driver.ErrInvalid)
		}
	}
	return cfg, nil
}

// checkFiles refuses TLS files that cannot be read immediately. The client's own error would quote
// the name, which may be a pasted key. If the file were a FIFO, the client would also wait for a
// writer.
func checkFiles(names ...string) error {
	for _, name := range names {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New("it is not a regular file")
		}
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err
		}
		if err != nil {
			return fmt.Errorf("tenure: %w: a certificate or key of consul: %w", driver.ErrInvalid, err)
		}
	}
	return nil
}

// local reports whether an address belongs to this host.
func local(address string) bool {
	if strings.HasPrefix(address, "unix://") {
		return true
	}
	address, _, _ = strings.Cut(address, "/")
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func tokenFile(path string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		text, err := driver.ReadSecret(path)
		if err != nil {
			return "", err
		}
		if token := strings.TrimSpace(text); token != "" {
			return token, nil
		}
		return "", errors.New("the token's file is empty")
	}
}

// Settings are the Opener's options in a configuration.
type Settings struct {
	Config    `yaml:",inline"`
	Namespace string `json:"namespace" yaml:"namespace"` // such as "orders"
	Options   `yaml:",inline"`
}

// Opener returns the opener for this backend, which is called "consul" in configurations.
func Opener() driver.Opener { return driver.NewOpener(backendName, openSettings) }

func openSettings(ctx context.Context, s *Settings) (*Backend, error) {
	return Open(ctx, s.Config, s.Namespace, &s.Options)
}
