package trace

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// Format is the number of the file format. A Reader reads only files with this number.
const Format = 1

// Header is the first line of each file.
type Header struct {
	Format    int         `json:"tenure_trace"`
	Namespace string      `json:"namespace"`
	StoreID   string      `json:"store_id"`
	Run       string      `json:"run"`   // id of the Run; only files of the same Run have the same id
	Part      int         `json:"part"`  // number of the file; file 0 begins with the first step
	Steps     int64       `json:"steps"` // number of steps before this file
	Wall      int64       `json:"wall"`  // nanoseconds since 1970, at the instant At
	At        fsm.Instant `json:"at"`
	Config    Config      `json:"config"`
	Runner    bool        `json:"runner,omitempty"` // the trace also has Calls and Leases
}

// Config is an fsm.Config without NewSession.
type Config struct {
	Member       driver.Member `json:"member"`
	Interval     time.Duration `json:"interval"`
	Jitter       float64       `json:"jitter"`
	Margin       time.Duration `json:"margin"`
	DrainBudget  time.Duration `json:"drain_budget"`
	AbandonAfter time.Duration `json:"abandon_after,omitempty"`
	Resync       time.Duration `json:"resync"`
	CallTimeout  time.Duration `json:"call_timeout"`
	RankDelay    time.Duration `json:"rank_delay"`
	BackoffMin   time.Duration `json:"backoff_min"`
	BackoffMax   time.Duration `json:"backoff_max"`
	WatchAll     int           `json:"watch_all"`
	WatchFew     int           `json:"watch_few"`
	Seed         uint64        `json:"seed"`
	HostLock     string        `json:"host_lock,omitempty"`
	Ineligible   string        `json:"ineligible,omitempty"`
	Failback     time.Duration `json:"failback,omitempty"`
}

// A Record is one line. It contains a step of the machine, acknowledged commits, a call, or an
// event of a lease for the application. Other Records contain a wall-clock time, a gap, or the end
// of the run.
type Record struct {
	At    fsm.Instant `json:"t"`
	In    *Input      `json:"i,omitempty"`
	Out   []Effect    `json:"o,omitempty"`
	Acks  *Acks       `json:"a,omitempty"`
	Call  *Call       `json:"x,omitempty"`
	Lease *Lease      `json:"l,omitempty"`
	Wall  int64       `json:"w,omitempty"` // nanoseconds since 1970
	Lost  int64       `json:"lost,omitempty"`
	End   bool        `json:"end,omitempty"` // no record follows, in this file or another
}

// Acks represents the commits with the numbers From to To under one lease. The commits are either
// all acknowledged or all in doubt.
type Acks struct {
	Fence   driver.Fence   `json:"f"`
	From    driver.WriteNo `json:"from"`
	To      driver.WriteNo `json:"to"`
	Doubt   bool           `json:"doubt,omitempty"`
	Entries driver.Seq     `json:"n,omitempty"`  // number of log entries that the commits appended
	Seq     driver.Seq     `json:"q,omitempty"`  // last entry of the log after these commits
	Sent    fsm.Instant    `json:"at,omitempty"` // when the last commit was first sent
}

// Fault contains an error's shortened text, and the sentinel errors that it matches.
type Fault struct {
	Is    []string      `json:"is,omitempty"`
	Owner *driver.Owner `json:"owner,omitempty"` // the owner that a HeldError or FencedError names
	Text  string        `json:"text,omitempty"`
}

// Input represents an fsm.Input in a trace.
type Input struct {
	Kind      string              `json:"k"`
	Shard     driver.ShardID      `json:"s,omitempty"`
	Shards    []driver.ShardID    `json:"ss,omitempty"`
	Heirs     []fsm.Heirs         `json:"heirs,omitempty"`
	Token     driver.Token        `json:"tok,omitempty"`
	To        driver.SessionID    `json:"to,omitempty"`
	Owner     *driver.Owner       `json:"own,omitempty"`
	View      *View               `json:"v,omitempty"`
	SentAt    fsm.Instant         `json:"sent,omitempty"`
	Call      fsm.CallID          `json:"c,omitempty"`
	Err       *Fault              `json:"e,omitempty"`
	Results   []Result            `json:"r,omitempty"`
	Evictions []Eviction          `json:"ev,omitempty"`
	State     *driver.MemberState `json:"st,omitempty"`
	Wait      time.Duration       `json:"w,omitempty"`
	Reason    string              `json:"why,omitempty"`
}

// View contains the fields of a driver.View that the machine reads.
type View struct {
	Reset   bool                `json:"reset,omitempty"`
	Members []driver.Member     `json:"m,omitempty"`
	Gone    []driver.SessionID  `json:"g,omitempty"`
	Beats   []driver.Beat       `json:"b,omitempty"`
	Shards  []driver.ShardState `json:"s,omitempty"`
}

// Result represents a driver.AcquireResult in a trace.
type Result struct {
	Fence *driver.Fence `json:"f,omitempty"`
	Head  *driver.Head  `json:"h,omitempty"`
	Err   *Fault        `json:"e,omitempty"`
}

// Eviction represents a driver.EvictResult in a trace.
type Eviction struct {
	Evicted bool           `json:"ok,omitempty"`
	Current driver.Version `json:"v,omitempty"`
	Err     *Fault         `json:"e,omitempty"`
}

// Effect represents an fsm.Effect in a trace.
type Effect struct {
	Kind      string              `json:"k"`
	Call      fsm.CallID          `json:"c,omitempty"`
	Timeout   time.Duration       `json:"within,omitempty"`
	Session   driver.SessionID    `json:"as,omitempty"`
	Member    *driver.Member      `json:"m,omitempty"`
	Claims    []driver.Claim      `json:"cl,omitempty"`
	Transfers []driver.Transfer   `json:"tr,omitempty"`
	Fences    []driver.Fence      `json:"fs,omitempty"`
	Suspects  []driver.Suspect    `json:"su,omitempty"`
	State     *driver.MemberState `json:"st,omitempty"`
	Fence     *driver.Fence       `json:"f,omitempty"`
	Owner     *driver.Owner       `json:"own,omitempty"`
	Head      *driver.Head        `json:"h,omitempty"`
	Until     fsm.Instant         `json:"until,omitempty"`
	Cause     string              `json:"cause,omitempty"`
	Outcome   uint8               `json:"out,omitempty"`
	Event     string              `json:"ev,omitempty"`
	Peer      *driver.Member      `json:"peer,omitempty"`
	Err       *Fault              `json:"e,omitempty"`
}

// The names of the kinds are part of the format.
var (
	inputs = [...]string{
		fsm.InWake: "wake", fsm.InWant: "want", fsm.InUnwant: "unwant", fsm.InDrained: "drained", fsm.InStalled: "stalled",
		fsm.InFenced: "fenced", fsm.InObserved: "observed", fsm.InJoined: "joined", fsm.InBeaten: "beaten",
		fsm.InAcquired: "acquired", fsm.InTransferred: "transferred", fsm.InReleased: "released", fsm.InEvicted: "evicted",
		fsm.InUpdated: "updated", fsm.InRead: "read", fsm.InClosed: "closed", fsm.InLeave: "leave",
		fsm.InStoreChanged: "store_changed", fsm.InPrefer: "prefer", fsm.InUpdate: "update", fsm.InEligible: "eligible",
	}
	effects = [...]string{
		fsm.EffJoin: "join", fsm.EffBeat: "beat", fsm.EffAcquire: "acquire", fsm.EffTransfer: "transfer",
		fsm.EffRelease: "release", fsm.EffEvict: "evict", fsm.EffUpdate: "update", fsm.EffRead: "read", fsm.EffClose: "close",
		fsm.EffResync: "resync", fsm.EffGrant: "grant", fsm.EffExtend: "extend", fsm.EffRevoke: "revoke",
		fsm.EffSettled: "settled", fsm.EffYield: "yield", fsm.EffEvent: "event",
	}
)

// The machine distinguishes these errors. Their names are part of the format.
var sentinels = []struct {
	name string
	err  error
}{
	{"fenced", driver.ErrFenced}, {"session_lost", driver.ErrSessionLost}, {"held", driver.ErrHeld},
	{"no_target", driver.ErrNoTarget}, {"conflict", driver.ErrConflict}, {"invalid", driver.ErrInvalid},
	{"too_large", driver.ErrTooLarge}, {"unsupported", driver.ErrUnsupported},
	{"store_changed", driver.ErrStoreChanged}, {"closed", driver.ErrClosed}, {"retry", driver.ErrRetry},
	{"damaged", driver.ErrDamaged},
}

// The text of an error is limited to this number of bytes.
const maxText = 200

// NewHeader returns the header for a machine's trace.
func NewHeader(info driver.Info, cfg *fsm.Config) *Header {
	return &Header{Format: Format, Namespace: info.Namespace, StoreID: info.StoreID, Config: configOf(cfg)}
}

// NewRecord returns the record of a step. The record shares memory with the input and the effects.
func NewRecord(now fsm.Instant, in *fsm.Input, out []fsm.Effect) *Record {
	r := &Record{At: now, In: inputOf(in)}
	for i := range out {
		r.Out = append(r.Out, effectOf(&out[i]))
	}
	return r
}

func configOf(c *fsm.Config) Config {
	return Config{
		Member: c.Member, Interval: c.Interval, Jitter: c.Jitter, Margin: c.Margin, DrainBudget: c.DrainBudget,
		AbandonAfter: c.AbandonAfter, Resync: c.Resync, CallTimeout: c.CallTimeout, RankDelay: c.RankDelay,
		BackoffMin: c.BackoffMin, BackoffMax: c.BackoffMax, WatchAll: c.WatchAll, WatchFew: c.WatchFew, Seed: c.Seed,
		HostLock: c.HostLock, Ineligible: c.Ineligible, Failback: c.Failback,
	}
}

// Machine returns the configuration of a state machine that takes the same steps. The given
// function supplies the session ids for the machine's joins.
func (c *Config) Machine(session func() driver.SessionID) fsm.Config {
	return fsm.Config{
		Member: c.Member, NewSession: session, Interval: c.Interval, Jitter: c.Jitter, Margin: c.Margin,
		DrainBudget: c.DrainBudget, AbandonAfter: c.AbandonAfter, Resync: c.Resync, CallTimeout: c.CallTimeout,
		RankDelay: c.RankDelay, BackoffMin: c.BackoffMin, BackoffMax: c.BackoffMax, WatchAll: c.WatchAll,
		WatchFew: c.WatchFew, Seed: c.Seed, HostLock: c.HostLock, Ineligible: c.Ineligible, Failback: c.Failback,
	}
}

func faultOf(err error) *Fault {
	if err == nil {
		return nil
	}
	f := &Fault{Text: err.Error()}
	if len(f.Text) > maxText {
		f.Text = f.Text[:maxText]
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			f.Is = append(f.Is, s.name)
		}
	}
	if held, ok := errors.AsType[*driver.HeldError](err); ok {
		f.Owner = &held.Owner
	} else if fenced, ok := errors.AsType[*driver.FencedError](err); ok && fenced.Current != (driver.Owner{}) {
		f.Owner = &fenced.Current
	}
	return f
}

// A fault matches the same sentinel errors as the original error.
type fault struct {
	text string
	is   []error
}

func (f *fault) Error() string   { return f.text }
func (f *fault) Unwrap() []error { return f.is }

func (f *Fault) err(shard driver.ShardID) error {
	if f == nil {
		return nil
	}
	e := &fault{text: f.Text}
	for _, name := range f.Is {
		for _, s := range sentinels {
			switch {
			case s.name != name:
			case f.Owner != nil && s.err == driver.ErrHeld: //nolint:errorlint // the sentinel itself
				e.is = append(e.is, &driver.HeldError{Shard: shard, Owner: *f.Owner})
			case f.Owner != nil && s.err == driver.ErrFenced: //nolint:errorlint // the sentinel itself
				e.is = append(e.is, &driver.FencedError{Current: *f.Owner})
			default:
				e.is = append(e.is, s.err)
			}
		}
	}
	return e
}

func unless[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func stateOf(st driver.MemberState) *driver.MemberState {
	if st.Priority == 0 && st.Weight == 0 && st.Meta == nil && !st.Draining && st.Update == 0 {
		return nil
	}
	return &st
}

func memberOf(m *driver.Member) *driver.Member {
	if m.Session == "" && m.Node == "" {
		return nil
	}
	return m
}

func viewOf(v *driver.View) *View {
	if v == nil {
		return nil
	}
	return &View{Reset: v.Reset, Members: v.Members, Gone: v.Gone, Beats: v.Beats, Shards: v.Shards}
}

func inputOf(in *fsm.Input) *Input {
	r := &Input{
		Kind: inputs[in.Kind], Shard: in.Shard, Shards: in.Shards, Heirs: in.Heirs, Token: in.Token, To: in.To,
		Owner: unless(in.Owner), SentAt: in.SentAt, Call: in.Call, Err: faultOf(in.Err), State: stateOf(in.State), Wait: in.Wait,
		Reason: in.Reason,
	}
	r.View = viewOf(in.View)
	for _, x := range in.Results {
		r.Results = append(r.Results, Result{Fence: unless(x.Fence), Head: unless(x.Head), Err: faultOf(x.Err)})
	}
	for _, x := range in.Evictions {
		r.Evictions = append(r.Evictions, Eviction{Evicted: x.Evicted, Current: x.Current, Err: faultOf(x.Err)})
	}
	return r
}

func kindOf(names []string, name string) (int, error) {
	for i, n := range names {
		if n == name && name != "" {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%.40q is no kind that this version knows", name)
}

// The errors in the results contain the shards of the answered call.
func (r *Input) input(shards []driver.ShardID) (fsm.Input, error) {
	kind, err := kindOf(inputs[:], r.Kind)
	if err != nil {
		return fsm.Input{}, err
	}
	in := fsm.Input{
		Kind: fsm.InputKind(kind), Shard: r.Shard, Shards: r.Shards, Heirs: r.Heirs, Token: r.Token, To: r.To,
		SentAt: r.SentAt, Call: r.Call, Err: r.Err.err(r.Shard), Wait: r.Wait, Reason: r.Reason,
	}
	if r.Owner != nil {
		in.Owner = *r.Owner
	}
	if r.State != nil {
		in.State = *r.State
	}
	if v := r.View; v != nil {
		in.View = &driver.View{Reset: v.Reset, Members: v.Members, Gone: v.Gone, Beats: v.Beats, Shards: v.Shards}
	}
	for i, x := range r.Results {
		var shard driver.ShardID
		if i < len(shards) {
			shard = shards[i]
		}
		res := driver.AcquireResult{Err: x.Err.err(shard)}
		if x.Fence != nil {
			res.Fence = *x.Fence
		}
		if x.Head != nil {
			res.Head = *x.Head
		}
		in.Results = append(in.Results, res)
	}
	for _, x := range r.Evictions {
		in.Evictions = append(in.Evictions, driver.EvictResult{Evicted: x.Evicted, Current: x.Current, Err: x.Err.err("")})
	}
	return in, nil
}

func effectOf(e *fsm.Effect) Effect {
	r := Effect{
		Kind: effects[e.Kind], Call: e.Call, Timeout: e.Timeout, Session: e.Session, Member: memberOf(&e.Member),
		Claims: e.Claims, Transfers: e.Transfers, Fences: e.Fences, Suspects: e.Suspects, State: stateOf(e.State),
		Fence: unless(e.Fence), Owner: unless(e.Owner), Until: e.Until, Outcome: uint8(e.Outcome), Peer: memberOf(&e.Peer),
		Err: faultOf(e.Err),
	}
	if e.HeadKnown {
		r.Head = &e.Head
	}
	if e.Cause != 0 {
		r.Cause = e.Cause.String()
	}
	if e.Event != 0 {
		r.Event = e.Event.String()
	}
	return r
}
