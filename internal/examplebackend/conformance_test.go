package examplebackend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/kv/kvfault"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/conformance/kvwire"
	"github.com/tenure-go/tenure/core/driver"
)

func TestConformance(t *testing.T) { // not parallel: cases that measure run alone
	conformance.Test(t, conformance.Harness{
		Name: Name,
		New:  func(t conformance.T) *conformance.Store { return newHarness(t).store() },
	})
}

const harnessNamespace = "suite/case"

// harness is one directory, and everything that was opened on it.
type harness struct {
	dir     string
	mu      sync.Mutex
	clients []*client
}

func newHarness(t conformance.T) *harness {
	dir, err := os.MkdirTemp("", "tenure-example-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("%v", err)
		}
	})
	return &harness{dir: dir}
}

// store offers the faults of a directory. There is no process to restart, so
// Restart is missing, and the suite reports that.
func (h *harness) store() *conformance.Store {
	return &conformance.Store{
		Open: func(ctx context.Context) (driver.Backend, error) {
			return h.open(ctx, harnessNamespace, true, plain)
		},
		OpenExisting: func(ctx context.Context) (driver.Backend, error) {
			return h.open(ctx, harnessNamespace, false, plain)
		},
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			return h.open(ctx, harnessNamespace+suffix, true, plain)
		},
		OpenLying: func(ctx context.Context) (driver.Backend, error) {
			return h.open(ctx, harnessNamespace, true, func(s kv.Store) kv.Store { return lying{s} })
		},
		OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
			link := new(kvfault.Link)
			b, err := h.open(ctx, harnessNamespace, true, link.Wrap)
			return b, kvwire.New(link), err
		},
		Calls: h.calls,
		Compact: func(ctx context.Context) error {
			return h.behind(ctx, func(c *client) error { return c.journal.compact(true) })
		},
		Tamper: func(ctx context.Context, what conformance.Tampering, name string) error {
			return h.behind(ctx, func(c *client) error { return tamper(c, what, name) })
		},
		Wipe: func(ctx context.Context) error {
			return h.behind(ctx, func(c *client) error { return os.Remove(c.journal.path()) })
		},
		Snapshot: func(ctx context.Context) (func(context.Context) error, error) {
			var backup []byte
			err := h.behind(ctx, func(c *client) (err error) {
				backup, err = os.ReadFile(c.journal.path())
				return err
			})
			return func(ctx context.Context) error {
				return h.behind(ctx, func(c *client) error { return replace(c.journal.path(), backup) })
			}, err
		},
	}
}

func plain(s kv.Store) kv.Store { return s }

func (h *harness) open(
	ctx context.Context, namespace string, create bool, wrap func(kv.Store) kv.Store,
) (driver.Backend, error) {
	c, err := newClient(h.dir, &Options{Create: create})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.clients = append(h.clients, c)
	h.mu.Unlock()
	b, err := openOn(ctx, wrap(c), c.poll, namespace, &Options{Create: create})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// calls counts reads of the file, watches' looks included, and writes.
func (h *harness) calls() (sum conformance.Calls) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.clients {
		sum.Reads += c.reads.Load()
		sum.Writes += c.writes.Load()
	}
	return sum
}

// behind does something to the files past the driver, under their lock.
func (h *harness) behind(ctx context.Context, f func(*client) error) error {
	c, err := newClient(h.dir, nil)
	if err != nil {
		return err
	}
	unlock, err := c.lock(ctx, true, false)
	if err != nil {
		return err
	}
	defer unlock()
	return errors.Join(c.refresh(), f(c), c.Close())
}

func tamper(c *client, what conformance.Tampering, name string) error {
	key, value, damage := kvwire.Damage(harnessNamespace, what, name, 1<<20)
	r := record{Key: key}
	switch {
	case damage:
		r.Value = []byte(value)
	case what == conformance.RewriteShard:
		p, ok := c.journal.table.records[r.Key]
		if !ok {
			return fmt.Errorf("there is no record %q", r.Key)
		}
		r.Value = p.Value
	case what == conformance.RemoveShard:
		r.Deleted = true
	default:
		return errors.ErrUnsupported
	}
	text, err := encodeLine(line{Rev: c.journal.table.rev + 1, Set: []record{r}})
	if err != nil {
		return err
	}
	return c.journal.append(text)
}

// lying is a store that ignores the conditions of writes.
type lying struct{ kv.Store }

func (l lying) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	free := &kv.Batch{Heartbeat: b.Heartbeat, Txns: slices.Clone(b.Txns)}
	for i := range free.Txns {
		free.Txns[i].If = nil
	}
	return l.Store.Apply(ctx, free)
}
