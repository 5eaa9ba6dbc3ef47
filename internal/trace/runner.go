package trace

import (
	"encoding/json"
	"hash/fnv"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// Call is a call that the store answered. The machine's request and the answer that it received are
// in the steps.
type Call struct {
	Call    fsm.CallID       `json:"c,omitempty"` // 0 for an Observe that succeeded
	Kind    string           `json:"k"`
	Session driver.SessionID `json:"s,omitempty"`
	Sent    fsm.Instant      `json:"at"`
	Full    bool             `json:"full,omitempty"` // only for an Observe: it read the full state
	Asked   uint64           `json:"q,omitempty"`    // hash of the arguments
	Answer  uint64           `json:"r,omitempty"`    // hash of the answer; 0 for success without results
}

// Lease is an event of a lease, as the application saw it.
type Lease struct {
	Fence driver.Fence `json:"f"`
	Is    string       `json:"is"` // one of the constants below
	// Until is the instant at which the application's trust in the lease ends.
	Until fsm.Instant  `json:"until,omitempty"`
	Head  *driver.Head `json:"h,omitempty"` // only in LeaseBegun
	// Valid is true in a LeaseEnded if the lease was still valid for the application.
	Valid bool `json:"valid,omitempty"`
}

// These constants are the kinds of lease events.
const (
	LeaseBegun  = "begun"  // the handler is called
	LeaseEnded  = "ended"  // the lease was revoked
	LeaseJoined = "joined" // the handler has returned, and no commit is in progress
)

const observed = "observe"

// Called records a call that the machine requested, with the request that reached the store and the
// store's answer. As with Step, the caller must not change the values to which e and in refer,
// because the Log reads them later.
func (l *Log) Called(sent fsm.Instant, e *fsm.Effect, in *fsm.Input) {
	l.note(item{
		rec: &Record{Call: &Call{Call: in.Call, Kind: effects[e.Kind], Session: e.Session, Sent: sent}},
		in:  *in, out: []fsm.Effect{*e},
	})
}

// Observed records a successful Observe.
func (l *Log) Observed(sent fsm.Instant, full bool, v *driver.View) {
	in := Input{View: viewOf(v)}
	l.note(item{rec: &Record{Call: &Call{Kind: observed, Sent: sent, Full: full, Answer: in.hash()}}})
}

// Told records a lease event that the application saw.
func (l *Log) Told(x *Lease) { l.note(item{rec: &Record{Lease: x}}) }

func (l *Log) note(i item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i.at, _ = l.o.Clock()
	i.rec.At = i.at
	l.put(i)
}

func (e *Effect) hash() uint64 {
	return hash(Effect{Member: e.Member, Claims: e.Claims, Transfers: e.Transfers, Fences: e.Fences, Suspects: e.Suspects, State: e.State})
}

// The hash ignores the texts of errors. For a view, the hash covers only the counts.
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

func (f *Fault) plain() *Fault {
	if f == nil {
		return nil
	}
	return &Fault{Is: f.Is, Owner: f.Owner}
}

// An empty Input or Effect has this JSON form.
const nothing = `{"k":""}`

// hash returns 0 if x is empty. The value x must consist of plain types.
func hash(x any) uint64 {
	text, _ := json.Marshal(x)
	if string(text) == nothing {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(text)
	return h.Sum64()
}
