package core

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// TestLost: regardless of how a lease ended, the errors of its methods and the causes of its
// contexts match ErrLost and mean that nothing was applied.
func TestLost(t *testing.T) {
	lost := func(w *world, what string, err error) {
		w.Helper()
		if !errors.Is(err, ErrLost) || !NotApplied(err) {
			w.Errorf("%s: %v, want ErrLost", what, err)
		}
	}
	for name, end := range map[string]func(w *world, m *member, l *Lease){
		"the process was stopped": func(w *world, m *member, _ *Lease) {
			m.link.Cut()
			time.Sleep(2 * ttl)
		},
		"the store refused a commit": func(w *world, m *member, l *Lease) {
			m.tap.missChanges()
			w.takeOver(m, 0)
			_, err := l.Append(w.Context(), nil)
			if !errors.Is(err, ErrFenced) {
				w.Errorf("append: %v, want ErrFenced", err)
			}
			lost(w, "append", err)
		},
		"the store changed": func(w *world, m *member, l *Lease) {
			m.tap.onCommit(func(driver.Session, context.Context, []driver.Write) ([]driver.CommitResult, error) {
				return nil, ErrStoreChanged
			})
			_, err := l.Append(w.Context(), nil)
			if !errors.Is(err, ErrStoreChanged) {
				w.Errorf("append: %v, want ErrStoreChanged", err)
			}
			lost(w, "append", err)
		},
		"the handler returned": func(w *world, m *member, _ *Lease) {
			w.must(m.Withdraw(w.Context(), "s"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onLease(t, func(w *world, m *member, l *Lease) {
				end(w, m, l)
				synctest.Wait()
				lost(w, "Err", l.Err())
				lost(w, "the context's cause", context.Cause(l.Context()))
				for what, ctx := range map[string]context.Context{"": w.Context(), ", under its context": l.Context()} {
					_, err := l.Append(ctx, nil)
					lost(w, "append"+what, err)
					_, err = l.Get(ctx, "k")
					lost(w, "get"+what, err)
					_, err = l.ReadLog(ctx, 0, 1)
					lost(w, "read"+what, err)
				}
			})
		})
	}
}

// TestLostWhileReading: if a read ends because the lease's context ended, the error shows this.
func TestLostWhileReading(t *testing.T) {
	onLease(t, func(w *world, m *member, l *Lease) {
		read := make(chan error)
		m.link.Cut()
		go func() {
			_, err := l.Get(l.Context(), "k")
			read <- err
		}()
		if err := <-read; !errors.Is(err, ErrLost) {
			w.Errorf("get: %v, want ErrLost", err)
		}
	})
}

// TestLostSentinels: the errors that mean a lost lease match ErrLost, and all other errors do not.
func TestLostSentinels(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		ErrFenced: true, ErrSessionLost: true, &FencedError{}: true, &SessionLostError{}: true,
		ErrConflict: false, ErrRetry: false, ErrUnknown: false, ErrWithdrawn: false, ErrHandOver: false, ErrShutdown: false,
	} {
		if errors.Is(err, ErrLost) != want {
			t.Errorf("%v matches ErrLost: %v, want %v", err, !want, want)
		}
	}
}
