package sqlfault

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/share"
)

// patience is how long CheckNetwork waits for a call before counting it as lost.
const patience = 250 * time.Millisecond

// CheckNetwork writes through a proxy with faults, until some commits have been applied without an
// answer. Each entry must then be in the log exactly once. The proxy cuts connections, loses
// requests and replies, delivers requests after their callers have given up, and forwards bytes one
// at a time. These faults also occur in the middle of statements. The framer finds the client's
// messages.
//
// In each round, the loss of requests and replies starts at a different message of an append.
// Together, the rounds cover every message, including the commit. With -short, CheckNetwork runs a
// third of the rounds.
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
	b := open(proxy.Addr())
	messages := messagesOfAppend(t, b, proxy)
	rounds := int64(share.Of(t, "messages of an append", int(messages), int(messages+2)/3))
	round := rand.Int64N(messages) // chooses the first message
	t.Logf("from message %d on", round)
	// When the round's message arrives, hit is called.
	at := func(ctx context.Context, hit func() faultproxy.Verdict, until func(before, now faultproxy.Stats) bool) error {
		var sent atomic.Int64
		return during(ctx, faultproxy.Faults{Requests: faultproxy.Flow{Decide: func([]byte) faultproxy.Verdict {
			if sent.Add(1) == 1+round%messages {
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
		func(ctx context.Context) error { // delivered after the caller has connected again
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
		func(ctx context.Context) error { // cut, and then no answer on two connections
			err := during(ctx, faultproxy.Faults{}, func(before, now faultproxy.Stats) bool {
				return now.Requests.Forwarded > before.Requests.Forwarded+3000
			})
			if err != nil {
				return err
			}
			round++
			return cut(ctx, proxy)
		},
	}
	next := -1
	faultWhileWriting(t, b, rounds*int64(len(faults)), patience, func(ctx context.Context) (int, error) {
		next++
		return 1, faults[next%len(faults)](ctx)
	}, func(o Outcomes) bool { return o.UnknownApplied > 0 && o.Refused > 0 })
}

// cut ends all connections. After the cut, two new connections get no answer.
func cut(ctx context.Context, proxy *faultproxy.Proxy) error {
	accepted := proxy.Stats().Accepted
	if err := proxy.SetNew(faultproxy.Faults{Mute: true}); err != nil {
		return err
	}
	proxy.Reset()
	if err := proxy.Wait(ctx, func(now faultproxy.Stats) bool { return now.Accepted >= accepted+2 }); err != nil {
		return err
	}
	return proxy.Set(faultproxy.Faults{})
}

// messagesOfAppend returns the number of messages that an append sends. Because the count may
// include other messages of the backend, messagesOfAppend returns the minimum over several appends.
func messagesOfAppend(t *testing.T, b driver.Backend, proxy *faultproxy.Proxy) int64 {
	t.Helper()
	w, err := NewWriter(t.Context(), b, "counted")
	if err != nil {
		t.Fatal(err)
	}
	least := int64(0)
	for range 5 { // in the first the server prepares its statements
		before := proxy.Stats().Requests.Frames
		if err := w.Append(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := proxy.Stats().Requests.Frames - before; least == 0 || n < least {
			least = n
		}
	}
	if least == 0 {
		t.Fatal("an append sends no message through the proxy")
	}
	t.Logf("an append sends %d messages", least)
	return least
}
