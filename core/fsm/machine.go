package fsm

import "github.com/tenure-go/tenure/core/driver"

// Machine is one member's side of the lease protocol: a pure state machine
// without I/O, clock or goroutine. Not safe for concurrent use.
type Machine struct {
	cfg Config
}

// New returns a machine that has not joined. It joins when it first wants a
// shard.
func New(cfg Config) *Machine { return &Machine{cfg: cfg} }

// Step tells the machine that at instant now in happened, and returns what to
// do, in order. Instants never decrease. The returned slice is valid until the
// next Step.
func (m *Machine) Step(now Instant, in Input) []Effect { return nil }

// WakeAt is the instant at which the machine wants its next Step if nothing
// happens before; Never if there is none.
func (m *Machine) WakeAt() Instant { return Never }

// AppendWatch appends the sessions whose heartbeats the machine wants to see,
// with the versions it knows: ObserveQuery.Beats of the next Observe.
func (m *Machine) AppendWatch(b []driver.Beat) []driver.Beat { return b }

// Session is the session joined as, empty when there is none.
func (m *Machine) Session() driver.SessionID { return "" }

// Trusted reports whether the session is trusted at now.
func (m *Machine) Trusted(now Instant) bool { return false }

// AppendMembers appends the members known to live, this one included, in no
// particular order.
func (m *Machine) AppendMembers(b []driver.Member) []driver.Member { return b }

// AppendShards appends the newest known record of every shard seen or wanted.
func (m *Machine) AppendShards(b []driver.ShardState) []driver.ShardState { return b }

// Settled reports whether nothing is left that names this session: no handler
// runs, no record is this session's, nothing is in flight. Then leaving loses
// nothing.
func (m *Machine) Settled() bool { return true }
