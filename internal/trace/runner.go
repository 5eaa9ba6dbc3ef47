package trace

import (
	"encoding/json"
	"hash/fnv"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// Call is a call that the store answered. The machine's request and the answer that it got are in
// its steps.
type Call struct {
	Call    fsm.CallID       `json:"c,omitempty"` // 0: an Observe that succeeded
	Kind    string           `json:"k"`
	Session driver.SessionID `json:"s,omitempty"`
	Sent    fsm.Instant      `json:"at"`
	Full    bool             `json:"full,omitempty"` // of an Observe: it read the full state
	Asked   uint64           `json:"q,omitempty"`    // hash of the arguments
	Answer  uint64           `json:"r,omitempty"`    // hash of the answer; 0 for success without results
}

// Lease is an event of one lease, as the application saw it.
type Lease struct {
	Fence driver.Fence `json:"f"`
	Is    string       `json:"is"` // one of the constants below
	// Until is how long the application trusts the lease.
	Until fsm.Instant  `json:"until,omitempty"`
	Head  *driver.Head `json:"h,omitempty"` // of LeaseBegun
	// Valid is true in LeaseEnded if the application still finds the lease valid.
	Valid bool `json:"valid,omitempty"`
}

// The events of a lease.
const (
	LeaseBegun  = "begun"  // its handler is called
	LeaseEnded  = "ended"  // it was revoked
	LeaseJoined = "joined" // its handler has returned, and no commit is in flight
)

// observed is the kind of an Observe.
const observed = "observe"

// Called notes a call that the machine asked for. e is the request that the store got, and in the
// answer. The Log reads the values that they refer to later, as with Step.
func (l *Log) Called(sent fsm.Instant, e *fsm.Effect, in *fsm.Input) {
	l.note(item{
		rec: &Record{Call: &Call{Call: in.Call, Kind: effects[e.Kind], Session: e.Session, Sent: sent}},
		in:  *in, out: []fsm.Effect{*e},
	})
}

// Observed notes an Observe that succeeded.
func (l *Log) Observed(sent fsm.Instant, full bool, v *driver.View) {
	in := Input{View: viewOf(v)}
	l.note(item{rec: &Record{Call: &Call{Kind: observed, Sent: sent, Full: full, Answer: in.hash()}}})
}

// Told notes an event of a lease for the application.
func (l *Log) Told(x *Lease) { l.note(item{rec: &Record{Lease: x}}) }

func (l *Log) note(i item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i.at, _ = l.o.Clock()
	i.rec.At = i.at
	l.put(i)
}

// hash returns a hash of a call's request.
func (e *Effect) hash() uint64 {
	return hash(Effect{Member: e.Member, Claims: e.Claims, Transfers: e.Transfers, Fences: e.Fences, Suspects: e.Suspects, State: e.State})
}

// hash returns a hash of an answer without the texts of errors. For a view, it hashes only the
// counts.
func (r *Input) hash() uint64 {
	if v := r.View; v != nil {
		return hash([]int{len(v.Members), len(v.Gone), len(v.Beats), len(v.Shards)})
	}
	x := Input{Err: r.Err.plain()}
	for _, res := range r.Results {
		res.Err = res.Err.plain()
		x.Results = append(x.Results, res)
	}
	for _, ev := range r.Evictions {
		ev.Err = ev.Err.plain()
		x.Evictions = append(x.Evictions, ev)
	}
	return hash(x)
}

// plain returns an error without its text.
func (f *Fault) plain() *Fault {
	if f == nil {
		return nil
	}
	return &Fault{Is: f.Is, Owner: f.Owner}
}

// nothing is the JSON of an empty Input or Effect.
const nothing = `{"k":""}`

// hash returns a hash of x, which has plain types, or 0 if x is empty.
func hash(x any) uint64 {
	text, _ := json.Marshal(x)
	if string(text) == nothing {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(text)
	return h.Sum64()
}
