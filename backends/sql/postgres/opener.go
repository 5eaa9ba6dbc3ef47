package postgres

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/backends/sql"
	"github.com/tenure-go/tenure/core/driver"
)

// Settings are the Opener's options in configuration. See Options.
type Settings struct {
	DSN           sql.Secret    `json:"dsn" yaml:"dsn"`                     // postgres://user@host/database?sslmode=verify-full
	PasswordFile  string        `json:"password_file" yaml:"password_file"` // read for each new connection; replaces the DSN's
	Namespace     string        `json:"namespace" yaml:"namespace"`         // such as "orders"
	Schema        string        `json:"schema" yaml:"schema"`
	TablePrefix   string        `json:"table_prefix" yaml:"table_prefix"`
	Create        bool          `json:"create" yaml:"create"`
	Migrate       bool          `json:"migrate" yaml:"migrate"`
	NewRoster     bool          `json:"new_roster" yaml:"new_roster"`
	Poll          time.Duration `json:"poll" yaml:"poll"`
	Pooler        bool          `json:"pooler" yaml:"pooler"`
	NoNotify      bool          `json:"no_notify" yaml:"no_notify"`
	NoIncarnation bool          `json:"no_incarnation" yaml:"no_incarnation"`
	MaxConns      int           `json:"max_conns" yaml:"max_conns"`
	Insecure      bool          `json:"insecure" yaml:"insecure"`
}

// Opener opens this backend by name, "postgres", from configuration.
var Opener = driver.Opener{
	Name: Name, Settings: Settings{},
	Open: func(ctx context.Context, decode func(any) error) (driver.Backend, error) {
		var s Settings
		if err := decode(&s); err != nil {
			return nil, err
		}
		o := &Options{
			Schema: s.Schema, TablePrefix: s.TablePrefix, Create: s.Create, Migrate: s.Migrate, NewRoster: s.NewRoster,
			PollPeriod: s.Poll, Pooler: s.Pooler, NoNotify: s.NoNotify, NoIncarnation: s.NoIncarnation,
			MaxConns: s.MaxConns, Insecure: s.Insecure,
		}
		if s.PasswordFile != "" {
			o.Password = sql.PasswordFile(s.PasswordFile)
		}
		b, err := Open(ctx, string(s.DSN), s.Namespace, o)
		if err != nil {
			return nil, err
		}
		return b, nil
	},
}
