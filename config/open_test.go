package config_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/core"
)

// TestOpenWithoutClient: every backend's Open reports that the client, store, servers or name is
// missing. For PostgreSQL, defaults and environment variables apply instead.
func TestOpenWithoutClient(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, open := range map[string]func() error{
		"etcd":      func() error { _, err := etcd.OpenClient(ctx, nil, "test", nil); return err },
		"consul":    func() error { _, err := consul.OpenClient(ctx, nil, "test", nil); return err },
		"memory":    func() error { _, err := memory.Open(ctx, nil, "test", nil); return err },
		"redis":     func() error { _, err := redis.Open(ctx, nil, "test", nil); return err },
		"zookeeper": func() error { _, err := zookeeper.Open(ctx, nil, "test", nil); return err },
		"sqlite":    func() error { _, err := sqlite.Open(ctx, "", "test", nil); return err },
		"mysql":     func() error { _, err := mysql.Open(ctx, "", "test", nil); return err },
		"kv":        func() error { _, err := kv.Open(ctx, nil, kv.Options{Backend: "kv", Namespace: "test"}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := open(); !errors.Is(err, core.ErrInvalid) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line that matches ErrInvalid", err)
			}
		})
	}
}

// TestOpenTimeout: if opening takes longer than open_timeout, the error names this key.
func TestOpenTimeout(t *testing.T) {
	t.Parallel()
	slow := core.Opener{Name: "memory", Settings: struct{}{}, Open: func(ctx context.Context, _ func(any) error) (core.Backend, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("making tables: %w", ctx.Err())
	}}
	c, err := load(t, "tenure: {open_timeout: 20ms, backends: {memory: {}}}")
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Open(t.Context(), slow)
	if b != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "20ms, which is open_timeout") {
		t.Errorf("got %v, %v; want an error that names open_timeout", b, err)
	}
}
