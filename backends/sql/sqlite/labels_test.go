package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
)

// lateRoster delays the first transaction on the roster until others are done.
type lateRoster struct {
	engine.Store
	others func()
}

func (s *lateRoster) WriteRoster(ctx context.Context, fn func(ctx context.Context, roster *engine.Tx) error) error {
	if others := s.others; others != nil {
		s.others = nil
		others()
	}
	return s.Store.WriteRoster(ctx, fn)
}

// TestLateJoinAfterRemoval: between a join's read and its write, its label is used and removed, so
// the write again finds no label (M3).
func TestLateJoinAfterRemoval(t *testing.T) {
	t.Parallel()
	st, o, stmts := newStore(t)
	late := &lateRoster{Store: st}
	b, err := engine.New(t.Context(), config("app", o, late, stmts))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	join := func(id, node string) (driver.Session, error) {
		return b.Join(t.Context(), driver.Member{Session: driver.SessionID(id), Node: node, TTL: 5 * time.Second,
			Supersede: id == "late"}) // otherwise, the join would be retried
	}
	labels := func() []string {
		all, err := b.Labels(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	late.others = func() {
		for i := 0; i == 0 || slices.Contains(labels(), "0"); i++ {
			node := fmt.Sprint(i)
			s, err := join("s"+node, node)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := join("late", "0"); !errors.Is(err, driver.ErrRetry) {
		t.Errorf("a join whose label was used and removed meanwhile answers %v, want ErrRetry", err)
	}
}
