package operator

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

var errDenied = errors.New("planted: the role lacks a right")

// TestDeniedHeartbeat: the store refuses the Writer's heartbeats while the Writer reads the
// namespace or decides. Nothing is written, and the error is that refusal.
func TestDeniedHeartbeat(t *testing.T) {
	t.Parallel()
	for name, reading := range map[string]bool{"while it reads": true, "while it decides": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &denying{Backend: newWorld(t, "a").b, reading: reading}
			w := writerOn(b)
			w.Options.TTL = time.Second
			w.Denied = func(err error) bool { return errors.Is(err, errDenied) }
			decided := false
			err := w.Write(t.Context(), func(ctx context.Context, _ *driver.View) (*Decision, error) {
				decided = true
				<-ctx.Done()
				return nil, ctx.Err()
			})
			if !errors.Is(err, errDenied) || !strings.HasPrefix(err.Error(), "nothing was written: ") {
				t.Errorf("got %v, want the refusal", err)
			}
			if decided == reading {
				t.Errorf("decided: %v", decided)
			}
		})
	}
}

// denying refuses heartbeats as soon as its session has a lease. If reading is set, reads of the
// whole namespace do not end from then on.
type denying struct {
	core.Backend
	reading bool
	granted atomic.Bool
}

func (d *denying) Observe(ctx context.Context, q driver.ObserveQuery) (*driver.View, error) {
	if d.reading && d.granted.Load() && q.Since == "" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.Backend.Observe(ctx, q)
}

func (d *denying) Join(ctx context.Context, m core.Member) (driver.Session, error) {
	s, err := d.Backend.Join(ctx, m)
	return &deniedSession{s, d}, err
}

type deniedSession struct {
	driver.Session
	d *denying
}

func (s *deniedSession) Acquire(ctx context.Context, claims []driver.Claim) ([]driver.AcquireResult, error) {
	results, err := s.Session.Acquire(ctx, claims)
	s.d.granted.Store(err == nil)
	return results, err
}

func (s *deniedSession) Beat(ctx context.Context) error {
	if s.d.granted.Load() {
		return errDenied
	}
	return s.Session.Beat(ctx)
}
