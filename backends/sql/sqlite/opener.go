package sqlite

import (
	"context"

	"github.com/tenure-go/tenure/core/driver"
)

// Settings contains the Opener's configuration.
type Settings struct {
	Path      string `json:"path" yaml:"path"`           // of the data file
	Namespace string `json:"namespace" yaml:"namespace"` // such as "orders"
	Options   `yaml:",inline"`
}

// Opener returns the opener for this backend, whose name in the configuration is "sqlite".
func Opener() driver.Opener { return driver.NewOpener(backendName, openSettings) }

func openSettings(ctx context.Context, s *Settings) (*Backend, error) {
	return Open(ctx, s.Path, s.Namespace, &s.Options)
}
