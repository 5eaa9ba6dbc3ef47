package outage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// Identity runs two members that each own a shard, and a third member as a standby. Identity then
// tampers with their namespace's identity in each of the given ways. After the tampering, the store
// must not apply commits. All members must halt with ErrStoreChanged within the TTL, at their next
// heartbeat or an earlier write (I1). The open function opens a namespace, and may create it. A way
// whose name begins with "roster" leaves the data's identity unchanged.
func Identity(
	t *testing.T, open func(t *testing.T, namespace string) driver.Backend,
	ways map[string]func(namespace string) error,
) {
	t.Helper()
	const ttl = 3 * time.Second
	for way, tamper := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			namespace := fmt.Sprintf("identity/%s-%s", way, rand.Text()) // unique, to allow repetitions
			var members []*witness
			var leases []*core.Lease
			for _, shard := range []string{"s1", "s2"} {
				m := newWitness(t, open(t, namespace), ttl, shard)
				members, leases = append(members, m), append(leases, m.owns(t))
			}
			successor := newWitness(t, open(t, namespace), ttl, "s1")
			members = append(members, successor)
			select {
			case <-successor.joined:
			case <-time.After(ample.Time):
				t.Fatal("the successor does not join")
			}
			machine := ample.Beside(t, ttl/20, reads(t, open(t, namespace+"-beside")))
			if err := tamper(namespace); err != nil {
				t.Fatal(err)
			}
			tampered := time.Now()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), ample.Time)
			defer cancel()
			for _, l := range leases {
				// A commit does not check the roster's copy of the database's identity.
				if _, err := l.Append(ctx, []byte("late")); err == nil && !strings.HasPrefix(way, "roster") {
					t.Error("a commit is applied")
				}
			}
			for i, m := range members {
				m.halts(t, i, namespace, tampered, ttl, machine)
			}
		})
	}
}

type witness struct {
	joined  chan struct{}
	granted chan *core.Lease
	halted  chan halt
	slowest atomic.Int64 // longest call, in ns
}

// halt is a member's last event, with its time.
type halt struct {
	err error
	at  time.Time
}

// newWitness runs a member that contends for a shard until the end of the test.
func newWitness(t *testing.T, b driver.Backend, ttl time.Duration, shard string) *witness {
	t.Helper()
	m := &witness{joined: make(chan struct{}), granted: make(chan *core.Lease, 1), halted: make(chan halt, 1)}
	e, err := core.NewElector(b, &core.Options{Logger: slog.New(slog.DiscardHandler), TTL: ttl, Hooks: core.Hooks{
		OnEvent: func(ev core.Event) {
			switch ev.Kind {
			case core.SessionJoined:
				close(m.joined)
			case core.SessionHalted:
				m.halted <- halt{ev.Err, time.Now()}
			default: // it continues
			}
		},
		OnCall: func(c core.Call) {
			if c.Kind != "observe" {
				m.slowest.Store(max(m.slowest.Load(), int64(c.Took)))
			}
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	err = e.Contend(func(ctx context.Context, l *core.Lease) error {
		m.granted <- l
		<-ctx.Done()
		return nil
	}, shard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; !errors.Is(err, core.ErrStoreChanged) {
			t.Errorf("Run returns %v", err)
		}
	})
	return m
}

func (m *witness) owns(t *testing.T) *core.Lease {
	t.Helper()
	select {
	case l := <-m.granted:
		return l
	case <-time.After(ample.Time):
		t.Fatal("a member owns nothing")
		return nil
	}
}

func (m *witness) halts(
	t *testing.T, i int, namespace string, since time.Time, ttl time.Duration, machine *ample.Gauge,
) {
	t.Helper()
	select {
	case h := <-m.halted:
		err, took, slowest := h.err, h.at.Sub(since), time.Duration(m.slowest.Load())
		t.Logf("member %d halted after %v, slowest call %v: %v", i, took.Round(time.Millisecond), slowest, err)
		if !errors.Is(err, core.ErrStoreChanged) || !strings.Contains(err.Error(), `"`+namespace+`"`) ||
			!strings.Contains(err.Error(), "identity") && !strings.Contains(err.Error(), "roster") {
			t.Errorf("member %d halts with %q: it should name the namespace and the state of its identity", i, err)
		}
		machine.AtMost(fmt.Sprintf("member %d: the halt", i), took, ttl+5*slowest)
	case <-time.After(ample.Time):
		t.Fatalf("member %d does not halt", i)
	}
}
