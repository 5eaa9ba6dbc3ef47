package route_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/seam"
	"github.com/tenure-go/tenure/sharding/route"
)

// narrow passes requests for the map to only one member, until narrow is open.
type narrow struct {
	only string
	open atomic.Bool
}

func (n *narrow) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/owners" && r.URL.Host != n.only && !n.open.Load() {
		return nil, errors.New("not this one")
	}
	return http.DefaultTransport.RoundTrip(r)
}

// TestMemberCutFromStore cuts one of three members off from the store. A client that got its map
// from that member requests the map from another member, and no request fails. Then, a second
// member dies, although the first member's map still names it. Again, no request fails.
func TestMemberCutFromStore(t *testing.T) {
	f := &fleet{T: t, store: memory.New(), shards: 12, ttl: time.Second}
	a, b, x := f.launch("a", "127.0.0.1:0"), f.launch("b", "127.0.0.1:0"), f.launch("x", "127.0.0.1:0")
	defer x.link.Heal() // before the members leave
	f.even(a, b, x)
	gate := &narrow{only: x.address}
	c := client(t, func(o *route.ClientOptions) { o.Base, o.Attempts = gate, 20 }, a, b, x)
	known(t, c)
	stuck := client(t, nil, x)
	known(t, stuck)
	gate.open.Store(true)
	x.link.Cut()
	await(t, "a and b own every shard", func() bool { return a.owns()+b.owns() == f.shards })
	b.server.Close() // the map of x names it
	b.link.Cut()
	defer b.link.Heal()
	await(t, "a owns every shard", func() bool { return a.owns() == f.shards })
	await(t, "the member that is cut off answers 503", func() bool {
		resp, err := http.Get("http://" + x.address + "/owners")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		p := route.ReadProblem(resp)
		return p != nil && p.Status == http.StatusServiceUnavailable && strings.Contains(p.Detail, "no news from the store")
	})
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	for i := range uint64(100) {
		if err := place(ctx, c, fmt.Sprintf("order-%d", i), i); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if age, _ := stuck.Age(); age < f.ttl {
		t.Errorf("the map of a member that had no news for a TTL has the age %v", age)
	}
	if _, fresh := x.e.Internal(seam.Key{}).News(); fresh {
		t.Error("a member that is cut off has fresh news")
	}
	if age, fresh := a.e.Internal(seam.Key{}).News(); !fresh {
		t.Errorf("the last news of a member beside its store are %v old", age)
	}
	x.link.Heal()
	await(t, "a map of a member that has the store again", func() bool {
		_, err := c.Owner("order-0")
		_, fresh := x.e.Internal(seam.Key{}).News()
		return err == nil && fresh
	})
}
