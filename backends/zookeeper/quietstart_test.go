package zookeeper

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestQuietFirstStart: members with different labels that start together in a new namespace do not
// log warnings.
func TestQuietFirstStart(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.ZooKeeper, &servers.Options{NoSync: true})
	var both [2]*Backend
	for i := range both {
		b, err := Open(t.Context(), []string{server.Addr()}, "app", &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		both[i] = b
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	said := &lines{}
	var all sync.WaitGroup
	var electors []*core.Elector
	for i, b := range both {
		e, err := core.NewElector(b, &core.Options{Node: string(rune('a' + i)), TTL: 10 * time.Second, LockDir: "none",
			Logger: slog.New(slog.NewTextHandler(said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Contend(func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }, "job"); err != nil {
			t.Fatal(err)
		}
		electors = append(electors, e)
	}
	for _, e := range electors {
		all.Go(func() { _ = e.Run(ctx) })
	}
	ample.Wait(t, "both join and one leads", func() bool {
		led := 0
		for _, e := range electors {
			if v := e.View(); v.Session == "" || !v.Trusted || len(v.Members) < 2 {
				return false
			}
			if e.Lease("job") != nil {
				led++
			}
		}
		return led == 1
	})
	stop()
	all.Wait()
	if text := said.String(); strings.Contains(text, "level=WARN") {
		t.Error(text)
	}
}
