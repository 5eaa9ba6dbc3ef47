package zookeeper

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestQuietLinkIsAsked: a link for watches that is lost silently, and has no calls, is given up
// without the library's pings. A link whose server answers stays.
func TestQuietLinkIsAsked(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, patient)
	for _, lost := range []bool{true, false} {
		t.Run(fmt.Sprint("lost-", lost), func(t *testing.T) {
			t.Parallel()
			proxy, err := faultproxy.New(server.Addr(), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = proxy.Close() })
			b, err := Open(bounded(t, ample.Time), []string{proxy.Addr()}, fmt.Sprint("quiet-", lost), &Options{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			lk, err := b.store.reads.link(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if lost {
				if err := proxy.Set(faultproxy.BlackHole()); err != nil {
					t.Fatal(err)
				}
			}
			within := askAfter + askLimit + time.Second
			if lost {
				within = ample.Time
			}
			select {
			case <-lk.down:
				if !lost {
					t.Error("a link whose server answers was given up")
				}
			case <-time.After(within):
				if lost {
					t.Error("a link that is lost was not given up")
				}
			}
			if lost {
				_ = proxy.Set(faultproxy.Faults{}) // so that Close need not wait
			}
		})
	}
}
