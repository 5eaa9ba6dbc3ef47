package bucket

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
)

// TestConformance runs the suite on a bucket in memory whose requests take a millisecond. Every
// second Backend of a case uses another connection. With -short, only the cases about claims,
// commits and fences run.
func TestConformance(t *testing.T) {
	h := harness(func(conformance.T) *suite { return newSuite() })
	if testing.Short() {
		conformance.TestDoors(t, h, nil)
		return
	}
	conformance.Test(t, h)
}

func harness(create func(conformance.T) *suite) conformance.Harness {
	return conformance.Harness{Name: backendName, New: func(t conformance.T) *conformance.Store { return create(t).store() },
		Skip: map[string]string{
			"Acquire/BatchCost":   "each object costs a read that proves its place, and each poll another",
			"History/CostsNoCall": "polls, and numbers that another process won, cost calls that have nothing to do with the history",
		}}
}

// place is where a bucket is.
type place interface {
	door() *blob.Bucket // another connection
	snapshot() map[string][]byte
	restore(objects map[string][]byte)
}

// suite is the bucket of one case.
type suite struct {
	place
	cloud *cloud // nil if the place is a server
	mu    sync.Mutex
	open  []*store
	wiped bool
}

func newSuite() *suite {
	fake := newCloud()
	fake.latency = time.Millisecond
	return &suite{place: fake, cloud: fake}
}

const caseNamespace = "suite/case"

func testConfig(c place, namespace string, create bool) config {
	b := c.door()
	return config{
		Options: Options{Create: create, Poll: 10 * time.Millisecond, MinTTL: 100 * time.Millisecond,
			Logger: slog.New(slog.DiscardHandler)},
		bucket: b, second: c.door(), name: "of a test", namespace: namespace, close: b.Close,
	}
}

func (s *suite) backend(ctx context.Context, namespace string, create bool, wrap func(kv.Store) kv.Store) (driver.Backend, error) {
	s.mu.Lock()
	if s.wiped && create { // processes that still ran have left objects, which an operator has to remove
		s.restore(nil)
		s.wiped = false
	}
	s.mu.Unlock()
	c := testConfig(s, namespace, create)
	if s.cloud == nil {
		c.Poll = 50 * time.Millisecond // each poll costs the server and this process time
	}
	own, err := prepare(ctx, c)
	err = errors.Join(err, c.second.Close())
	if err != nil && own != nil {
		return nil, errors.Join(err, own.Close())
	} else if err != nil {
		return nil, errors.Join(err, c.close())
	}
	s.mu.Lock()
	s.open = append(s.open, own)
	s.mu.Unlock()
	through := kv.Store(own)
	if wrap != nil {
		through = wrap(own)
	}
	b, err := finish(ctx, own, through, c)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// client runs fn on a store that closes afterwards.
func (s *suite) client(ctx context.Context, fn func(kv.Store) error) error {
	c := testConfig(s, caseNamespace, false)
	own, err := prepare(ctx, c)
	if err != nil {
		return errors.Join(err, c.close(), c.second.Close())
	}
	return errors.Join(fn(own), own.Close(), c.second.Close())
}

func (s *suite) store() *conformance.Store {
	open := func(ctx context.Context) (driver.Backend, error) { return s.backend(ctx, caseNamespace, true, nil) }
	of := &conformance.Store{
		Open:      open,
		OpenOther: open,
		OpenExisting: func(ctx context.Context) (driver.Backend, error) {
			return s.backend(ctx, caseNamespace, false, nil)
		},
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			return s.backend(ctx, caseNamespace+suffix, true, nil)
		},
		OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
			wrap, wire := conformance.KVFaults()
			b, err := s.backend(ctx, caseNamespace, true, wrap)
			return b, wire, err
		},
		Compact: func(context.Context) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, own := range s.open {
				own.mu.Lock()
				own.state.history, own.state.kept, own.state.floor = nil, 0, own.state.rev
				own.mu.Unlock()
			}
			return nil
		},
		Tamper: s.tamper,
		Wipe: func(context.Context) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.wiped = true
			s.restore(nil)
			return nil
		},
		Snapshot: func(context.Context) (func(context.Context) error, error) {
			backup := s.snapshot()
			return func(context.Context) error {
				s.restore(backup)
				return nil
			}, nil
		},
		RaiseFloor: func(ctx context.Context, above driver.Token) error {
			b := s.door()
			return errors.Join(RaiseFloor(ctx, b, caseNamespace, above, nil), b.Close())
		},
	}
	if s.cloud != nil {
		s.fault(of)
	}
	return of
}

// fault adds what only a bucket in memory can do.
func (s *suite) fault(of *conformance.Store) {
	of.OpenLying = func(ctx context.Context) (driver.Backend, error) {
		lying := newSuite()
		lying.cloud.lying = true
		return lying.backend(ctx, caseNamespace, true, nil)
	}
	of.Calls = func() conformance.Calls {
		// A create that meets another process's object only learns of it.
		lost := s.cloud.taken.Load()
		return conformance.Calls{Reads: s.cloud.gets.Load() + s.cloud.lists.Load() + lost, Writes: s.cloud.creates.Load() - lost}
	}
	of.Deny = func(context.Context) (func(context.Context) error, error) {
		s.cloud.deny(true)
		return func(context.Context) error {
			s.cloud.deny(false)
			return nil
		}, nil
	}
}

func (s *suite) tamper(ctx context.Context, what conformance.Tampering, name string) error {
	key, value, ok := conformance.KVDamage(caseNamespace, what, name, 1<<20)
	return s.client(ctx, func(c kv.Store) error {
		op := kv.Op{Key: key, Value: []byte(value)}
		switch {
		case ok:
		case what == conformance.RewriteShard:
			page, err := c.Get(ctx, key)
			if err != nil {
				return err
			}
			op.Value = page.Pairs[0].Value
		case what == conformance.RemoveShard || what == conformance.RemoveEntry:
			op = kv.Op{Key: key, Delete: true}
		default:
			return errors.ErrUnsupported
		}
		_, err := c.Apply(ctx, &kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{op}}}})
		return err
	})
}

// TestRefused opens buckets that no member may use.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*cloud)
		want   string
	}{
		{"a bucket that ignores the condition", func(c *cloud) { c.lying = true }, "it ignores the condition"},
		{"a bucket whose lists lag", func(c *cloud) { c.lagging = true }, "a list has 9 of 10 objects"},
		{"a bucket without a right", func(c *cloud) { c.denied = true }, "AccessDenied"},
	} {
		fake := newCloud()
		c.change(fake)
		_, err := open(t.Context(), testConfig(fake, "app", true))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "of a test") {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if names := fake.names("!log"); len(names) > 0 {
			t.Errorf("%s: a refused open left %v", c.name, names)
		}
	}
	folder, err := fileblob.OpenBucket(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if _, err := OpenBucket(t.Context(), folder, "app", nil); !errors.Is(err, driver.ErrUnsupported) ||
		!strings.Contains(err.Error(), "use SQLite") {
		t.Errorf("a folder answers %v", err)
	}
	for _, o := range []Options{{Poll: time.Millisecond}, {MinTTL: time.Second}, {Prefix: "/a"}, {Prefix: "a b"}} {
		if _, err := OpenBucket(t.Context(), folder, "app", &o); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("the options %+v answer %v", o, err)
		}
	}
	empty := newCloud()
	_, err = open(t.Context(), testConfig(empty, "app", false))
	if _, ok := errors.AsType[*driver.MissingError](err); !ok || len(empty.names("")) > 0 {
		t.Errorf("without Create an empty bucket answers %v, and has %v", err, empty.names(""))
	}
}
