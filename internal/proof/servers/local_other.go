//go:build !linux

package servers

import (
	"context"
	"runtime"
)

// startLocalCluster needs Linux, whose kernel ends servers when the process that started them dies.
func startLocalCluster(_ context.Context, kind Kind, _ int, _ *Options) ([]*Server, error) {
	if name := kind.variable(); name != "" {
		return nil, unavailable(kind, "on %s servers are not started: name a running one in %s", runtime.GOOS, name)
	}
	return nil, unavailable(kind, "on %s servers are not started", runtime.GOOS)
}
