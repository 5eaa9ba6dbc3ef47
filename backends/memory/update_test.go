package memory_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

// TestLateUpdate: an update changes nothing if a later update was stored between its read and its
// write (M4).
func TestLateUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := new(kvfault.Link)
		b, err := memory.Open(t.Context(), memory.New(), "app", &memory.Options{Wrap: link.Wrap})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		s, err := b.Join(t.Context(), driver.Member{Session: "s", Node: "n", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		link.Set(kvfault.Write, kvfault.HoldRequest)
		late := make(chan error, 1)
		go func() { late <- s.Update(t.Context(), driver.MemberState{Weight: 1, Update: 1}) }()
		if err := link.AwaitHeld(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		link.Set(kvfault.Write, kvfault.None)
		if err := s.Update(t.Context(), driver.MemberState{Weight: 2, Update: 2}); err != nil {
			t.Fatal(err)
		}
		link.Deliver()
		if err := <-late; !errors.Is(err, driver.ErrConflict) {
			t.Errorf("the late update answers %v, want ErrConflict", err)
		}
		v, err := b.Observe(t.Context(), driver.ObserveQuery{})
		if err != nil || len(v.Members) != 1 || v.Members[0].Weight != 2 {
			t.Errorf("the record says %+v, %v; want weight 2", v.Members, err)
		}
	})
}
