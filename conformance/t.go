package conformance

import (
	"context"
	"testing"
)

// T is the part of *testing.T that the suite uses. [Wrap] makes a T from a *testing.T. [Check]
// has its own T, so that the suite also runs outside go test. The methods have the same meaning
// as in package testing.
type T interface {
	Name() string
	Context() context.Context
	Helper()
	Parallel()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(f func())
	Run(name string, f func(T)) bool
}

// Wrap adapts a *testing.T.
func Wrap(t *testing.T) T { return wrapped{t} }

type wrapped struct{ *testing.T }

func (w wrapped) Run(name string, f func(T)) bool {
	return w.T.Run(name, func(t *testing.T) { f(wrapped{t}) })
}
