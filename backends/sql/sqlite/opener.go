package sqlite

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Settings are the Opener's options in configuration.
type Settings struct {
	Path        string        `json:"path" yaml:"path"`                 // of the data file
	Namespace   string        `json:"namespace" yaml:"namespace"`       // such as "orders"
	Poll        time.Duration `json:"poll" yaml:"poll"`                 // see Options.PollPeriod
	Create      *bool         `json:"create" yaml:"create"`             // default true; see Options.MustExist
	NewRoster   bool          `json:"new_roster" yaml:"new_roster"`     // see Options.NewRoster
	TablePrefix string        `json:"table_prefix" yaml:"table_prefix"` // see Options.TablePrefix
}

// Opener opens this backend by name, "sqlite", from configuration.
var Opener = driver.Opener{
	Name: Name, Settings: Settings{},
	Open: func(ctx context.Context, decode func(any) error) (driver.Backend, error) {
		var s Settings
		if err := decode(&s); err != nil {
			return nil, err
		}
		b, err := Open(ctx, s.Path, s.Namespace, &Options{
			PollPeriod: s.Poll, MustExist: s.Create != nil && !*s.Create,
			NewRoster: s.NewRoster, TablePrefix: s.TablePrefix,
		})
		if err != nil {
			return nil, err
		}
		return b, nil
	},
}
