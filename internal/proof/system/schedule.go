package system

import (
	"math/rand/v2"
	"slices"
	"time"
)

// fault is a kind of member or store fault.
type fault string

const (
	faultKill      fault = "SIGKILL, restart after a takeover"
	faultRestart   fault = "SIGKILL, restart inside the TTL"
	faultSupersede fault = "SIGKILL, restart inside the TTL, superseding"
	faultStop      fault = "SIGSTOP past the TTL"
	faultShort     fault = "SIGSTOP within the margin"
	faultSend      fault = "SIGSTOP past the TTL between check and send"
	faultReply     fault = "SIGSTOP past the TTL between send and reply"
	faultLeave     fault = "leave and restart"
	faultWithdraw  fault = "withdraw a shard for a while"
	faultHandOver  fault = "hand a shard over"
	faultReboot    fault = "the store restarts"
	faultPause     fault = "the store pauses"
	faultCut       fault = "the store is cut off"
)

// ofStore reports whether the fault affects the store rather than a member.
func (f fault) ofStore() bool { return f == faultReboot || f == faultPause || f == faultCut }

// takesOver reports whether other members may take over the member's shards.
func (f fault) takesOver() bool {
	switch f {
	case faultKill, faultRestart, faultSupersede, faultStop, faultSend, faultReply:
		return true
	default:
		return false
	}
}

func (f fault) kills() bool { return f == faultKill || f == faultRestart || f == faultSupersede }

func (f fault) stops() bool {
	return f == faultStop || f == faultShort || f == faultSend || f == faultReply
}

type step struct {
	Fault  fault
	After  time.Duration // after the step before it began
	For    time.Duration // duration
	Victim float64       // choice of the member, as a share of the free members
	Owner  bool          // choose the member with the most shards instead
	Shard  float64       // choice of the victim's shard, as a share
}

// schedule draws the steps of one seed. Some of the first steps are the same for every seed, so
// every run has a takeover by force and a late write. The other steps come from a shuffled deck of
// all faults.
type schedule struct {
	rand   *rand.Rand
	ttl    time.Duration
	margin time.Duration
	first  []fault
	deck   []fault
	any    []fault
}

func newSchedule(seed uint64, ttl time.Duration, steps int, store *Store) *schedule {
	s := &schedule{
		rand: rand.New(rand.NewPCG(seed, 0x5eed)), ttl: ttl, margin: marginOf(ttl),
		any: []fault{faultKill, faultRestart, faultSupersede, faultStop, faultShort, faultSend, faultReply,
			faultLeave, faultWithdraw, faultHandOver},
	}
	for _, f := range []struct {
		fault fault
		can   bool
	}{{faultReboot, store.Restart != nil}, {faultPause, store.Pause != nil}, {faultCut, store.Cut != nil}} {
		if f.can {
			s.any = append(s.any, f.fault)
		}
	}
	s.first = []fault{faultSend, faultSend, faultKill, faultStop}
	for len(s.first) < steps {
		s.first = append(s.first, s.draw())
	}
	s.rand.Shuffle(len(s.first), func(i, j int) { s.first[i], s.first[j] = s.first[j], s.first[i] })
	return s
}

// members returns the number of processes for the seed. Small numbers are more likely.
func (s *schedule) members() int {
	n := maxMembers - minMembers + 1
	return minMembers + min(s.rand.IntN(n), s.rand.IntN(n))
}

// draw takes a fault from the deck.
func (s *schedule) draw() fault {
	if len(s.deck) == 0 {
		s.deck = slices.Clone(s.any)
		s.rand.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
	}
	f := s.deck[0]
	s.deck = s.deck[1:]
	return f
}

// insert makes a fault the next step.
func (s *schedule) insert(f fault) { s.first = slices.Insert(s.first, 0, f) }

// next draws a step. The schedule never ends.
func (s *schedule) next() step {
	st := step{After: s.ttls(0.5, 1.2), Victim: s.rand.Float64(), Owner: s.rand.IntN(10) < 7, Shard: s.rand.Float64()}
	if len(s.first) > 0 {
		st.Fault, s.first = s.first[0], s.first[1:]
	} else {
		st.Fault = s.draw()
	}
	switch st.Fault {
	case faultKill:
		st.For = s.ttls(1.3, 2)
	case faultRestart, faultSupersede:
		st.For = s.ttls(0.05, 0.6)
	case faultSend, faultReply:
		st.Owner = true // a member that writes
		st.For = s.ttls(1.2, 2)
	case faultStop:
		st.For = s.ttls(1.2, 2)
	case faultShort:
		st.For = time.Duration((0.3 + 0.5*s.rand.Float64()) * float64(s.margin))
	case faultPause, faultCut:
		st.For = s.ttls(1.2, 1.8)
	case faultLeave, faultWithdraw, faultHandOver:
		st.For = s.ttls(0.1, 0.6)
	default: // faultReboot takes as long as the server needs
	}
	return st
}

func (s *schedule) ttls(least, most float64) time.Duration {
	return time.Duration((least + (most-least)*s.rand.Float64()) * float64(s.ttl))
}

// marginOf returns the members' margin.
func marginOf(ttl time.Duration) time.Duration { return ttl / 5 }
