// Package kvwire makes the faults of a [kvfault.Link] those of the conformance suite,
// for the harness of a backend over package kv.
package kvwire

import (
	"errors"

	"github.com/tenure-go/tenure/backends/kv/kvfault"
	"github.com/tenure-go/tenure/conformance"
)

// New is the Wire of a backend whose store l carries. Calls that are cut off fail at
// once, and are not known to be sent.
func New(l *kvfault.Link) *conformance.Wire {
	set := func(f kvfault.Fault) func() func() {
		return func() func() {
			l.Set(kvfault.All, f)
			return l.Heal
		}
	}
	return &conformance.Wire{
		DropRequests: set(kvfault.DropRequest),
		DropReplies:  set(kvfault.DropReply),
		Duplicate:    set(kvfault.Duplicate),
		Hold: func() func() {
			l.Set(kvfault.Write|kvfault.Heartbeat, kvfault.HoldRequest)
			return func() {
				l.Heal()
				l.Deliver()
			}
		},
		Cut: func() func() {
			l.SetError(kvfault.All, errors.New("connection refused"))
			return l.Heal
		},
	}
}
