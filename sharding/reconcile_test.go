package sharding

import (
	"testing"

	"github.com/tenure-go/tenure/core"
)

func TestStep(t *testing.T) {
	t.Parallel()
	states := []core.LeaseState{"", core.LeaseStarting, core.LeaseHeld, core.LeaseDraining, core.LeaseStuck, core.LeaseRevoked}
	flags := []bool{false, true}
	for _, state := range states {
		for _, contended := range flags {
			for _, leave := range flags {
				for _, alone := range flags {
					for _, successor := range []core.SessionID{"", "x"} {
						s := situation{contended: contended, state: state, leave: leave, alone: alone, successor: successor}
						active := state == core.LeaseHeld || state == core.LeaseStarting
						want := keep
						switch {
						case state == "" && !contended && !leave:
							want = contend
						case state == "" && contended && leave:
							want = withdraw
						case active && contended && successor != "":
							want = handOver
						case active && contended && alone:
							want = withdraw
						}
						if got := s.step(); got != want {
							t.Errorf("%+v: step %d, want %d", s, got, want)
						}
					}
				}
			}
		}
	}
}
