package sqlfault

import (
	"context"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
)

// patience is how long a call of CheckNetwork waits before it counts as lost.
const patience = 250 * time.Millisecond

// CheckNetwork writes through a proxy that cuts connections, loses requests and
// replies, delivers requests late after their callers gave up, and lets single
// bytes through, in the middle of statements as well, until some commits were
// applied unheard: each entry is in the log once.
func CheckNetwork(t *testing.T, server string, open func(addr string) driver.Backend) {
	t.Helper()
	proxy, err := faultproxy.New(server, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	during := func(ctx context.Context, f faultproxy.Faults, until func(before, now faultproxy.Stats) bool) error {
		before := proxy.Stats()
		if err := proxy.Set(f); err != nil {
			return err
		}
		if err := proxy.Wait(ctx, func(now faultproxy.Stats) bool { return until(before, now) }); err != nil {
			return err
		}
		return proxy.Set(faultproxy.Faults{})
	}
	faults := []func(context.Context) error{
		func(ctx context.Context) error { // cut
			err := during(ctx, faultproxy.Faults{}, func(before, now faultproxy.Stats) bool {
				return now.Requests.Forwarded > before.Requests.Forwarded+3000
			})
			proxy.Reset()
			return err
		},
		func(ctx context.Context) error { // requests lost
			return during(ctx, faultproxy.Faults{Requests: faultproxy.Flow{Swallow: true}}, func(
				before, now faultproxy.Stats,
			) bool {
				return now.Requests.Swallowed > before.Requests.Swallowed
			})
		},
		func(ctx context.Context) error { // replies lost
			return during(ctx, faultproxy.Faults{Replies: faultproxy.Flow{Swallow: true}}, func(
				before, now faultproxy.Stats,
			) bool {
				return now.Replies.Swallowed > before.Replies.Swallowed
			})
		},
		func(ctx context.Context) error { // delivered after the caller has connected anew
			return during(ctx, faultproxy.Faults{Requests: faultproxy.Flow{Hold: true}}, func(
				before, now faultproxy.Stats,
			) bool {
				return now.Accepted > before.Accepted && now.Requests.Held > 0
			})
		},
		func(ctx context.Context) error { // dripping
			drip := faultproxy.Flow{Drip: 50 * time.Microsecond}
			return during(ctx, faultproxy.Faults{Requests: drip, Replies: drip}, func(
				before, now faultproxy.Stats,
			) bool {
				return now.Requests.Forwarded > before.Requests.Forwarded+1000
			})
		},
	}
	next := 0
	faultWhileWriting(t, open(proxy.Addr()), int64(4*len(faults)), patience, func(ctx context.Context) (int, error) {
		next++
		return 1, faults[next%len(faults)](ctx)
	}, func(o Outcomes) bool { return o.UnknownApplied > 0 && o.Refused > 0 })
}
