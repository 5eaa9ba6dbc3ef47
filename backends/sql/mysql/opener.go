package mysql

import (
	"context"

	"github.com/tenure-go/tenure/backends/sql/internal/dialect"
	"github.com/tenure-go/tenure/core/driver"
)

// Settings contains the Opener's configuration.
type Settings struct {
	DSN          driver.Secret `json:"dsn" yaml:"dsn"`                     // user:password@tcp(host:port)/database?tls=true
	PasswordFile string        `json:"password_file" yaml:"password_file"` // read for each new connection; replaces the DSN's password
	Namespace    string        `json:"namespace" yaml:"namespace"`         // such as "orders"
	Options      `yaml:",inline"`
}

// Opener returns the opener for this backend, whose name in the configuration is "mysql".
func Opener() driver.Opener { return driver.NewOpener(backendName, openSettings) }

func openSettings(ctx context.Context, s *Settings) (*Backend, error) {
	if s.PasswordFile != "" {
		s.Password = dialect.PasswordFile(s.PasswordFile)
	}
	return Open(ctx, string(s.DSN), s.Namespace, &s.Options)
}
