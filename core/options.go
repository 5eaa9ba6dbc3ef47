package core

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/mark"
)

// Options say how a member behaves. The zero value, and nil, work. No duration may
// exceed a year. An Elector
// copies its options; they may be shared.
type Options struct {
	// Node is the label of the machine or replica. Default: the host name, with
	// what the grammar of names does not allow replaced by "-".
	Node string
	// Priority, Weight and Meta are what the member starts with: see Elector.Update.
	//
	// Priority: members with a higher one claim first. Default 0.
	Priority int32
	// Weight is the capacity that assigners go by, relative to the others'. 0
	// means 1.
	Weight int32
	// Meta tells the others something small, such as an address: at most 16
	// entries and 2048 bytes, the keys within the grammar of names. Keys that begin with
	// "_" are Tenure's own, and refused.
	Meta map[string]string
	// Supersede ends the session that joined last under the same node label, so
	// that a process restarted after a crash has its shards back at once. Needs
	// Node, and a platform that keeps the label unique: two live processes with
	// one label evict each other.
	Supersede bool
	// LockDir is the directory of the lock by which a process that is restarted on the
	// same host, under the same Node, knows that the former one has ended, and has its
	// shards back at once (C14). It is a file system of this host. Default os.TempDir();
	// "none" for no lock. A lock that cannot be had is no error: nothing follows from it.
	LockDir string

	// Eligible, if set, says whether this member is to own shards: nil, or why not, such as
	// a dependency that fails, an old version, or a follower that is behind. A member that is
	// not eligible claims nothing, and what it holds goes to an eligible member: the handler's
	// context ends with ErrIneligible. The holder keeps it while no other member is eligible,
	// or none that is takes it: then it claims it again half a TTL later, and tries anew after
	// BackoffMax, and twice as long after each time that nobody took it. So a shard moves at
	// most once in BackoffMax for this. An order goes before: HandOver to a member that is not
	// eligible, or a drain while nobody else is. Package sharding moves shards that it assigns.
	//
	// Run asks it every Heartbeat, with a context that ends after as long; a member without an
	// answer by then, and before the first one, is not eligible. A call that does not return
	// delays nothing but the next one. The error's text, up to 160 bytes of it, is published: in
	// the member's record, which all members read, in their views, logs and metrics. It must
	// not have credentials.
	Eligible func(ctx context.Context) error
	// Failback is how long a member with a higher priority has to live, and to be eligible,
	// as this one sees it, until what is held here goes to it: the handler's context ends with
	// ErrFailback. Default 0: never, what is held is kept. At most once in BackoffMax for each
	// shard. Shards that package sharding assigns are left to it.
	Failback time.Duration

	// TTL is how long the others wait in silence before they take over. Default
	// 10 s, at least Limits.MinTTL, at most 24 h.
	TTL time.Duration
	// Heartbeat is the time between two heartbeats. Default TTL/3; at least 1 ms, at
	// most (TTL - Margin) / 2, so that one may fail.
	Heartbeat time.Duration
	// Jitter is the share of Heartbeat that is taken off at random. Default 0.1,
	// at most 0.5; negative for none.
	Jitter float64
	// Margin is taken off the TTL to give the trust window. It covers how much the
	// rates of two clocks may differ over a TTL, and the time the process needs to
	// notice. Default TTL/10, at least 50 ms or TTL/5 if that is less; at least
	// TTL/500, below TTL/3.
	Margin time.Duration
	// DrainBudget is how long a handler may take to return once its context ended;
	// then the lease is revoked. Default 10 s.
	DrainBudget time.Duration
	// LameDuck is how long a planned stop waits before it asks handlers to stop: View.Leaving
	// is set at once, so that load balancers that ask /readyz look elsewhere while all is
	// still served here. Default 0: no wait. See Elector.Leave.
	LameDuck time.Duration
	// AbandonAfter is how long after such a revocation the lease is released
	// although the handler still runs. 0, the default: never. With it the work of
	// two owners may overlap; only what is fenced is protected.
	AbandonAfter time.Duration
	// ReturnHalted has Run return once the member is halted, so that a supervisor restarts
	// the process: see Run. Default false: it goes on without leases until its context ends,
	// and /healthz of package tenurehttp answers 503. A restart decides what an operator else
	// would: a store that is opened anew is taken for what it was, unless its backend knows
	// better (I2).
	ReturnHalted bool
	// Watchdog, if positive, is how often a handler must call Lease.Progress; one
	// that does not, also while it drains, has its lease revoked as if its drain
	// budget were spent.
	Watchdog time.Duration

	// BackoffMin and BackoffMax bound the wait after a failed join, and before a
	// shard whose handler returned early is tried here again. It doubles. Defaults
	// 100 ms, or TTL/20 if that is more; and 30 s, or BackoffMin if that is more.
	BackoffMin, BackoffMax time.Duration
	// Resync is the time between two full reads of the namespace, which find what
	// a watch missed. Default 10 TTL, at least 30 s.
	Resync time.Duration
	// CallTimeout bounds every call but heartbeats. Default the TTL, at least 5 s. Calls
	// begin with less, a third to half of the TTL and more for a large batch, and get
	// twice as long after each that had no answer.
	CallTimeout time.Duration
	// RankDelay is the time that the k-th candidate for a shard leaves to the one
	// before it. Default 1.5 times the poll period, at least 10 ms.
	RankDelay time.Duration

	// Hooks are told what happens.
	Hooks Hooks
	// Logger gets each grant and revocation at Info, and each refused write, stuck
	// handler, handler's error, lost session and damaged record at Warn. Default
	// slog.Default, as it is at each line; slog.New(slog.DiscardHandler) for none. It is
	// called like a hook.
	//
	// Lines have the attributes node, which is this member's label; session, shard and
	// token of a lease; cause; error; current_token and current_session of the record that
	// refused a write; by_session and by_node, which ended a session; peer_session and
	// peer_node of another member; key and why of a damaged record.
	Logger *slog.Logger
	// TraceDir is a directory, which exists. The member writes into files there, one or two for
	// each Run, what its state machine is given and does, for "tenure check". They have names of
	// shards, node labels, Meta, session ids and tokens; of commits they have the numbers, not what
	// was written. The member does not wait for the disk: what that does not take in time is left
	// out. Default: no trace.
	TraceDir string
	// TraceBytes bounds the files of one Run, but for what one second brings, 4 MiB at most. Above,
	// the older half goes. Default 256 MiB, at least 1 MiB.
	TraceBytes int64
	// Seed of jitter and back-off, for tests. 0, the default: random.
	Seed uint64
}

// The machine watches the heartbeats of every member of a cluster of up to
// watchAll, and of watchFew predecessors each in a larger one (rule O3).
const (
	watchAll = 16
	watchFew = 3
)

// maxDuration bounds every option of time, so that sums of them cannot overflow.
const maxDuration = 365 * 24 * time.Hour

// Validate checks the options, with their defaults filled in, against each other
// and against a backend's limits. The error matches ErrInvalid; it names the
// field and its value, and says what to change. Nil options are valid if the
// defaults are.
func (o *Options) Validate(l Limits) error {
	_, err := o.resolve(l)
	return err
}

// resolve returns a copy with the defaults filled in, or says what is wrong.
func (o *Options) resolve(l Limits) (*Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Supersede && c.Node == "" {
		return nil, optErr("Supersede is set and Node is empty: set Node to a label that the platform keeps unique")
	}
	if c.Node == "" {
		c.Node = hostNode()
	}
	if c.Weight == 0 {
		c.Weight = 1
	}
	c.Meta, c.LockDir = maps.Clone(c.Meta), cmp.Or(c.LockDir, os.TempDir())
	def(&c.TTL, 10*time.Second)
	def(&c.Heartbeat, c.TTL/3)
	if c.Jitter == 0 {
		c.Jitter = 0.1
	}
	def(&c.Margin, max(c.TTL/10, min(50*time.Millisecond, c.TTL/5)))
	def(&c.DrainBudget, 10*time.Second)
	def(&c.BackoffMin, max(100*time.Millisecond, c.TTL/20))
	def(&c.BackoffMax, max(30*time.Second, c.BackoffMin))
	def(&c.Resync, max(10*c.TTL, 30*time.Second))
	def(&c.CallTimeout, max(c.TTL, 5*time.Second))
	def(&c.RankDelay, max(10*time.Millisecond, l.PollPeriod*3/2))

	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"TTL", c.TTL}, {"Heartbeat", c.Heartbeat}, {"Margin", c.Margin}, {"DrainBudget", c.DrainBudget},
		{"Failback", c.Failback}, {"LameDuck", c.LameDuck}, {"AbandonAfter", c.AbandonAfter}, {"Watchdog", c.Watchdog}, {"BackoffMin", c.BackoffMin},
		{"BackoffMax", c.BackoffMax}, {"Resync", c.Resync}, {"CallTimeout", c.CallTimeout}, {"RankDelay", c.RankDelay},
	} {
		if d.v < 0 {
			return nil, optErr("%s %v is negative: leave it 0 for its default", d.name, d.v)
		}
		if d.v > maxDuration {
			return nil, optErr("%s %v is above %v: lower it", d.name, d.v, maxDuration)
		}
	}
	m := c.member("0")
	if err := cmp.Or(driver.CheckMember(m, l), driver.CheckNode(c.Node)); err != nil {
		return nil, err
	}
	m.Update = 1
	if err := cmp.Or(checkMeta(m.Meta), c.checkState(m.MemberState, nil)); err != nil {
		return nil, err
	}
	switch {
	case c.Margin < c.TTL/500:
		return nil, optErr("Margin %v is below TTL/500 (%v), which two clocks may differ by: raise it", c.Margin, c.TTL/500)
	case c.Margin >= c.TTL/3:
		return nil, optErr("Margin %v is not below a third of the TTL %v: lower it, or raise TTL above %v", c.Margin, c.TTL, 3*c.Margin)
	case c.Heartbeat > (c.TTL-c.Margin)/2:
		return nil, optErr("Heartbeat %v leaves no room for one to fail within TTL %v less Margin %v: lower it to at most %v",
			c.Heartbeat, c.TTL, c.Margin, (c.TTL-c.Margin)/2)
	case c.Heartbeat < time.Millisecond:
		return nil, optErr("Heartbeat %v is below 1ms: raise it", c.Heartbeat)
	case !(c.Jitter <= 0.5):
		return nil, optErr("Jitter %v is above 0.5: lower it", c.Jitter)
	case c.BackoffMax < c.BackoffMin:
		return nil, optErr("BackoffMax %v is below BackoffMin %v: raise it", c.BackoffMax, c.BackoffMin)
	case c.Resync < c.TTL:
		return nil, optErr("Resync %v is below the TTL %v, and would read the whole namespace that often: raise it", c.Resync, c.TTL)
	case c.Watchdog > 0 && c.Watchdog < time.Millisecond:
		return nil, optErr("Watchdog %v is below 1ms: raise it", c.Watchdog)
	}
	c.Jitter = max(c.Jitter, 0)
	if c.Seed == 0 {
		var b [8]byte
		rand.Read(b[:])
		c.Seed = binary.LittleEndian.Uint64(b[:])
	}
	return &c, c.resolveTrace()
}

func (o *Options) member(id SessionID) Member {
	return Member{Session: id, Node: o.Node, TTL: o.TTL, Supersede: o.Supersede,
		MemberState: driver.MemberState{Priority: o.Priority, Weight: o.Weight, Meta: o.Meta}}
}

// checkMeta refuses the keys that are Tenure's own.
func checkMeta(meta map[string]string) error {
	for k := range meta {
		if strings.HasPrefix(k, "_") {
			return optErr(`the key %q of Meta begins with "_", as Tenure's own do: rename it`, k)
		}
	}
	return nil
}

func (o *Options) machine() fsm.Config {
	why := ""
	if o.Eligible != nil {
		why = notAsked
	}
	return fsm.Config{
		Ineligible: why, Failback: o.Failback,
		Member: o.member(""), NewSession: sessionsOf(newSessionID()),
		Interval: o.Heartbeat, Jitter: o.Jitter, Margin: o.Margin,
		DrainBudget: o.DrainBudget, AbandonAfter: o.AbandonAfter,
		Resync: o.Resync, CallTimeout: o.CallTimeout, RankDelay: o.RankDelay,
		BackoffMin: o.BackoffMin, BackoffMax: o.BackoffMax,
		WatchAll: watchAll, WatchFew: watchFew, Seed: o.Seed,
	}
}

func def(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

func optErr(format string, args ...any) error {
	return fmt.Errorf("tenure: %w options: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// sessionsOf makes the session ids of a process: all begin as the first one, so that a member that
// joins again is known to be the same process.
func sessionsOf(first SessionID) func() SessionID {
	return func() SessionID { return mark.Process(first) + newSessionID()[mark.ProcessLen:] }
}

// newSessionID makes up an id that is never used again (rule C3): 128 random
// bits.
func newSessionID() SessionID {
	var b [16]byte
	rand.Read(b[:])
	return SessionID(hex.EncodeToString(b[:]))
}

// hostNode is the host name, made to fit the grammar of names.
func hostNode() string {
	h, err := os.Hostname()
	if err != nil {
		return "node"
	}
	return sanitise(h)
}

func sanitise(h string) string {
	h = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '.', r == '-':
			return r
		}
		return '-'
	}, h)
	h = strings.TrimLeft(h, ".-")
	if len(h) > driver.MaxNameLen {
		h = h[:driver.MaxNameLen]
	}
	if h == "" {
		return "node"
	}
	return h
}
