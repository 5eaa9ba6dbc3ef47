package sqlfault

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
)

// patience is how long a call of CheckNetwork waits before it counts as lost.
const patience = 250 * time.Millisecond

// messagesOfWrite is how many messages of CheckNetwork's client are hit, of the
// first of a transaction on: as many as the longest of them has.
const messagesOfWrite = 12

// CheckNetwork writes through a proxy that cuts connections, loses requests and
// replies, delivers requests late after their callers gave up, and lets single
// bytes through, in the middle of statements as well, until some commits were
// applied unheard: each entry is in the log once. The framer tells the proxy where
// the messages of the client end.
//
// Requests and replies are lost from another message of a transaction in each round
// of the faults, so that each of its messages has its turn, the commit as well.
func CheckNetwork(
	t *testing.T, server string, framer faultproxy.Framer, open func(addr string) driver.Backend,
) {
	t.Helper()
	proxy, err := faultproxy.New(server, &faultproxy.Options{RequestFramer: framer})
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
	round := int64(0)
	// at has the round's message treated by hit.
	at := func(ctx context.Context, hit func() faultproxy.Verdict, until func(before, now faultproxy.Stats) bool) error {
		var messages atomic.Int64
		return during(ctx, faultproxy.Faults{Requests: faultproxy.Flow{Decide: func([]byte) faultproxy.Verdict {
			if messages.Add(1) == 1+round%messagesOfWrite {
				return hit()
			}
			return faultproxy.Pass
		}}}, until)
	}
	faults := []func(context.Context) error{
		func(ctx context.Context) error { // requests lost
			return at(ctx, func() faultproxy.Verdict {
				_ = proxy.Set(faultproxy.Faults{Requests: faultproxy.Flow{Swallow: true}}) // fails only when closed
				return faultproxy.Pass
			}, func(before, now faultproxy.Stats) bool {
				return now.Requests.Swallowed > before.Requests.Swallowed
			})
		},
		func(ctx context.Context) error { // replies lost
			return at(ctx, func() faultproxy.Verdict { return faultproxy.LoseAnswer }, func(
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
		func(ctx context.Context) error { // cut, and then nobody answers for two connections
			err := during(ctx, faultproxy.Faults{}, func(before, now faultproxy.Stats) bool {
				return now.Requests.Forwarded > before.Requests.Forwarded+3000
			})
			if err != nil {
				return err
			}
			round++
			accepted := proxy.Stats().Accepted
			if err := proxy.SetNew(faultproxy.Faults{Mute: true}); err != nil {
				return err
			}
			proxy.Reset()
			if err := proxy.Wait(ctx, func(now faultproxy.Stats) bool { return now.Accepted >= accepted+2 }); err != nil {
				return err
			}
			return proxy.Set(faultproxy.Faults{})
		},
	}
	next := -1
	faultWhileWriting(t, open(proxy.Addr()), messagesOfWrite*int64(len(faults)), patience, func(ctx context.Context) (int, error) {
		next++
		return 1, faults[next%len(faults)](ctx)
	}, func(o Outcomes) bool { return o.UnknownApplied > 0 && o.Refused > 0 })
}
