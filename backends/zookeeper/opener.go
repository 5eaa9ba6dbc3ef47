package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// Settings are the Opener's options in a configuration.
type Settings struct {
	Servers      []string `json:"servers" yaml:"servers"`             // each host:port
	Namespace    string   `json:"namespace" yaml:"namespace"`         // such as "orders"
	PasswordFile string   `json:"password_file" yaml:"password_file"` // read for each connection; takes precedence over password
	TLS          bool     `json:"tls" yaml:"tls"`                     // with the machine's CAs, unless ca_file is set
	CAFile       string   `json:"ca_file" yaml:"ca_file"`             // PEM; means tls
	CertFile     string   `json:"cert_file" yaml:"cert_file"`         // PEM, the client's, with key_file; means tls
	KeyFile      string   `json:"key_file" yaml:"key_file"`
	// in the servers' certificates, if it differs from the host
	ServerName string `json:"server_name" yaml:"server_name"`
	Options    `yaml:",inline"`

	certificate *driver.Certificate // from TLS files
}

// Opener returns the opener for this backend, which is called "zookeeper" in configurations.
func Opener() driver.Opener { return driver.NewOpener(backendName, openSettings) }

func openSettings(ctx context.Context, s *Settings) (*Backend, error) {
	o, err := s.options()
	if err != nil {
		return nil, err
	}
	b, err := Open(ctx, s.Servers, s.Namespace, o)
	if err == nil {
		b.Certificate = s.certificate
	}
	return b, err
}

func (s *Settings) options() (*Options, error) {
	o := &s.Options
	if s.PasswordFile != "" {
		var err error
		if o.Password, err = readPassword(s.PasswordFile); err != nil {
			return nil, err
		}
		o.passwordFile = s.PasswordFile
	}
	if !s.TLS && s.CAFile == "" && s.CertFile == "" && s.KeyFile == "" {
		return o, nil
	}
	var err error
	s.certificate = &driver.Certificate{}
	files := driver.TLSFiles{CA: s.CAFile, Cert: s.CertFile, Key: s.KeyFile, ServerName: s.ServerName}
	if o.files, o.TLS, err = driver.TLSReader(files.Config).Renewed(s.certificate); err != nil {
		return nil, fmt.Errorf("tenure: %w: %w", driver.ErrInvalid, err)
	}
	return o, nil
}

// readPassword reads the file with the password for digest authentication.
func readPassword(path string) (driver.Secret, error) {
	text, err := driver.ReadSecret(path)
	if err == nil && (text == "" || strings.Contains(text, ":")) {
		err = errors.New("it is empty, or has a colon")
	}
	if err != nil {
		return "", fmt.Errorf("tenure: %w: reading password_file: %w", driver.ErrRetry, err)
	}
	return driver.Secret(text), nil
}
