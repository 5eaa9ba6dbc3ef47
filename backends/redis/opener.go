package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/core/driver"
)

// Settings are the Opener's options in a configuration.
type Settings struct {
	// such as localhost:6379; several belong to a cluster or to Sentinels
	Addrs      []string `json:"addrs" yaml:"addrs"`
	MasterName string   `json:"master_name" yaml:"master_name"` // the master's name at the Sentinels in addrs
	Cluster    bool     `json:"cluster" yaml:"cluster"`         // also with one address
	DB         int      `json:"db" yaml:"db"`                   // the database's number

	Username     string        `json:"username" yaml:"username"` // ACL user; default: the default user
	Password     driver.Secret `json:"password" yaml:"password"`
	PasswordFile string        `json:"password_file" yaml:"password_file"` // read for each connection; takes precedence over password
	// for the Sentinels; default: none
	SentinelUsername string        `json:"sentinel_username" yaml:"sentinel_username"`
	SentinelPassword driver.Secret `json:"sentinel_password" yaml:"sentinel_password"`

	TLS      bool   `json:"tls" yaml:"tls"`             // with the machine's CAs, unless ca_file is set
	CAFile   string `json:"ca_file" yaml:"ca_file"`     // PEM; means tls
	CertFile string `json:"cert_file" yaml:"cert_file"` // PEM, the client's, with key_file; means tls
	KeyFile  string `json:"key_file" yaml:"key_file"`
	// expected in the certificate; default: the address's host
	ServerName string `json:"server_name" yaml:"server_name"`

	Namespace string `json:"namespace" yaml:"namespace"` // such as "orders"
	Options   `yaml:",inline"`

	certificate *driver.Certificate // from TLS files
}

// Opener returns the opener for this backend, which is called "redis" in configurations.
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

func (s *Settings) config() (*goredis.UniversalOptions, error) {
	c := &goredis.UniversalOptions{
		Addrs: s.Addrs, MasterName: s.MasterName, IsClusterMode: s.Cluster, DB: s.DB,
		Username: s.Username, Password: string(s.Password),
		SentinelUsername: s.SentinelUsername, SentinelPassword: string(s.SentinelPassword),
	}
	wrong := func(what string, err error) (*goredis.UniversalOptions, error) {
		return nil, fmt.Errorf("tenure: %w: the %s of Redis: %w", driver.ErrInvalid, what, err)
	}
	if s.PasswordFile != "" {
		text, err := driver.ReadSecret(s.PasswordFile)
		if err != nil {
			return wrong("password_file", err)
		}
		c.Password = text
		c.CredentialsProviderContext = func(context.Context) (string, string, error) {
			text, err := driver.ReadSecret(s.PasswordFile)
			if err != nil {
				err = fmt.Errorf("password_file: %w", err)
			}
			return s.Username, text, err
		}
	}
	if s.DB != 0 && (s.Cluster || s.MasterName == "" && len(s.Addrs) > 1) {
		return wrong("db", errors.New("a cluster has database 0 only"))
	}
	if s.Username != "" && c.Password == "" {
		return wrong("username", errors.New("it goes with a password"))
	}
	if !s.TLS && s.CAFile == "" && s.CertFile == "" && s.KeyFile == "" {
		return c, nil
	}
	s.certificate = &driver.Certificate{}
	files := driver.TLSFiles{CA: s.CAFile, Cert: s.CertFile, Key: s.KeyFile, ServerName: s.ServerName}
	read, first, err := driver.TLSReader(files.Config).Renewed(s.certificate)
	if err != nil {
		return wrong("files of TLS", err)
	}
	c.TLSConfig = first
	c.Dialer = read.Dial((&net.Dialer{Timeout: 5 * time.Second}).DialContext)
	return c, nil
}
