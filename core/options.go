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

// Options contains the settings of an Elector. The zero value and a nil pointer are both valid. No
// duration may exceed a year. An Elector copies its options, so several Electors may share them.
type Options struct {
	// Node is the label of the machine or replica. The default is the host name, with "-" in place
	// of each character that names cannot contain.
	Node string
	// Priority, Weight and Meta are the member's initial state. See Elector.Update.
	//
	// Members with a higher Priority claim first. The default is 0.
	Priority int32
	// Weight is the member's capacity relative to other members, for assigners. 0 means 1.
	Weight int32
	// Meta is a small set of values that other members see, such as an address. Meta has at most 16
	// entries and 2048 bytes, and its keys follow the grammar of names. The Elector refuses keys
	// that begin with "_", which are reserved.
	Meta map[string]string
	// Supersede makes each join of this process end the last session that joined under the same
	// node label. With Supersede, a process that restarts after a crash gets its shards back
	// immediately. Supersede requires Node and a platform that keeps the label unique, because two
	// live processes with one label evict each other.
	Supersede bool
	// LockDir is the directory of the host lock. If a process restarts on the same host, under the
	// same Node, the lock shows that the former process has ended. The new process then gets its
	// shards back immediately (C14). The directory must be on a file system of this host. The
	// default is os.TempDir(). The value "none" disables the lock. If the lock cannot be taken, the
	// member runs without a lock.
	LockDir string

	// Eligible is optional. It returns nil if this member should own shards, and otherwise the
	// reason, such as a failing dependency, an old version, or a follower that is behind. A member
	// that is not eligible claims no shards. The shards of an ineligible member go to an eligible
	// member, and their handlers' contexts end with ErrIneligible. While no other member is
	// eligible, the holder keeps its shards. If no eligible member takes an offered shard, the
	// holder claims the shard again after half a TTL. The holder offers the shard again after
	// BackoffMax. The holder doubles this wait each time no member takes the shard. Withdraw and
	// HandOver give up a shard even if no other member is eligible. Package sharding moves the
	// shards that it assigns.
	//
	// Run calls Eligible once per Heartbeat interval, with a context that ends after one interval.
	// Before the first answer, and while an answer is late, the member is not eligible. A call that
	// does not return delays only the next call. The first 160 bytes of the error's text appear in
	// the member's record, and thus in all members' views, logs and metrics. The error's text must
	// not contain credentials.
	Eligible func(ctx context.Context) error
	// Trouble returns nil, or a problem of this process that an operator must fix. The problem then
	// appears in the log, in all members' views and metrics, on the board and in the command's output
	// (View.Trouble). It does not change which shards this member owns. Run calls Trouble as it calls
	// Eligible, and the same limits apply to the text. An answer that is late is a problem itself.
	// Default (nil): the backend's method Trouble, if it has one, as a backend of package quorum does.
	Trouble func(ctx context.Context) error
	// Failback is how long a member with a higher priority must have been eligible before it gets
	// the shards that this member holds. This member measures how long the other member has been
	// eligible. The contexts of these shards' handlers end with ErrFailback. Failback moves each
	// shard at most once per BackoffMax. By default (0), the holder keeps its shards. Failback does
	// not move shards that package sharding assigns.
	Failback time.Duration

	// TTL is how long a member may be silent before the other members take over. By default, TTL is
	// 10 s. The minimum is Limits.MinTTL, and the maximum is 24 h.
	TTL time.Duration
	// Heartbeat is the time between consecutive heartbeats. The default is TTL/3, and the minimum
	// is 1 ms. The maximum is (TTL - Margin) / 2, so that one heartbeat may fail.
	Heartbeat time.Duration
	// Jitter is the maximum fraction of Heartbeat by which each interval is randomly shortened. The
	// default is 0.1, and the maximum is 0.5. A negative value means no jitter.
	Jitter float64
	// Margin is the last part of the TTL, during which a lease is no longer trusted. Margin covers
	// the difference between the rates of two clocks over a TTL, and the time that the process
	// needs to notice that a lease has ended. The default is TTL/10, but at least 50 ms or TTL/5,
	// whichever is less. Margin must be at least TTL/500 and below TTL/3.
	Margin time.Duration
	// DrainBudget is how long a handler may take to return after its context has ended. After this
	// time, the Elector revokes the handler's lease. The default is 10 s.
	DrainBudget time.Duration
	// LameDuck is how long a planned stop waits before it asks handlers to stop. View.Leaving is
	// set immediately. Load balancers that check /readyz therefore send new requests to other
	// processes while this process still serves. By default (0), the stop does not wait. See
	// Elector.Leave.
	LameDuck time.Duration
	// AbandonAfter is how long a handler may run after its lease was revoked before the Elector
	// releases the lease. By default (0), the Elector keeps the lease while the handler runs. With
	// AbandonAfter, the work of two owners may overlap, and only fenced writes are protected.
	AbandonAfter time.Duration
	// ReturnHalted makes Run return when the member is halted, so that a supervisor restarts the
	// process. See Run. By default, Run continues without leases until its context ends, and
	// package tenurehttp's /healthz answers 503. A restart bypasses the operator's decision,
	// because the new process trusts the store in its current state unless its backend detects the
	// change (I2).
	ReturnHalted bool
	// Watchdog is the longest time allowed between a handler's calls to Lease.Progress, even while
	// the handler drains. By default (0), there is no limit. If the handler exceeds this time, the
	// Elector revokes its lease in the same way as after DrainBudget. The watchdog does not apply
	// to package lock's locks.
	Watchdog time.Duration

	// BackoffMin and BackoffMax limit two waits: the wait after a failed join, and the wait before
	// a new claim of a shard whose handler returned early. Each wait doubles with every attempt. By
	// default, BackoffMin is 100 ms or TTL/20, whichever is more, and BackoffMax is 30 s or
	// BackoffMin, whichever is more.
	BackoffMin, BackoffMax time.Duration
	// Resync is the time between two full reads of the namespace, which find changes that a watch
	// missed. The default is 10 times the TTL, but at least 30 s.
	Resync time.Duration
	// CallTimeout limits every call except heartbeats. The default is the TTL, but at least 5 s. A
	// call first gets a shorter limit of a third to half of the TTL, or more for a large batch. The
	// limit doubles after each unanswered call.
	CallTimeout time.Duration
	// RankDelay is how much longer each candidate for a shard waits than the candidate before it.
	// The default is 1.5 times the poll period, but at least 10 ms.
	RankDelay time.Duration

	// Hooks are functions that the Elector calls when something happens.
	Hooks Hooks
	// Logger receives grants and revocations at level Info. Logger receives refused writes, stuck
	// handlers, handlers' errors, lost sessions and damaged records at level Warn. The default is
	// the logger that slog.Default returns when a line is logged. To log nothing, use
	// slog.New(slog.DiscardHandler). The Elector calls Logger in the same way as it calls hooks.
	//
	// Each line has the attribute node, which is this member's label. Other attributes are:
	//
	//   - session, shard and token of a lease;
	//   - cause and error;
	//   - current_token and current_session of the record that refused a write;
	//   - by_session and by_node of the member that ended a session;
	//   - peer_session and peer_node of another member;
	//   - key and why of a damaged record.
	Logger *slog.Logger
	// TraceDir is an existing directory for trace files, which "tenure check" reads. The member
	// writes the inputs and effects of its state machine to these files. The files contain shard
	// names, node labels, Meta, session ids, tokens and the numbers of commits. The files do not
	// contain the contents of commits. The member does not wait for the disk. If the disk is full
	// or too slow, the member drops trace records and logs a warning. By default, the member writes
	// no trace.
	TraceDir string
	// TraceBytes limits the total size of Node's trace files in TraceDir, including the files of
	// earlier processes. The member removes the oldest files first. The total may exceed the limit
	// by one record and 64 KiB, and by an eighth for each other process that traces under the same
	// Node. The default is 256 MiB, and the minimum is 1 MiB.
	TraceBytes int64
	// Seed is the random seed for jitter and back-off. Set Seed only in tests. By default (0), the
	// seed is random.
	Seed uint64
}

// The machine watches the heartbeats of up to watchAll other members. If there are more members,
// the machine watches only its watchFew predecessors (rule O3).
const (
	watchAll = 16
	watchFew = 3
)

// maxDuration limits every duration in Options, so that no sum of durations can overflow.
const maxDuration = 365 * 24 * time.Hour

// Validate checks the options, with their defaults filled in, against each other and against a
// backend's limits. The error matches ErrInvalid, contains the field and its value, and explains
// what to change. If the options are nil, Validate checks the defaults.
func (o *Options) Validate(l Limits) error {
	_, err := o.resolve(l)
	return err
}

// resolve returns a copy with the defaults filled in, or an error that explains what to change.
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

// sessionsOf returns a function that generates a process's session ids. All ids have the same
// prefix as the first id, so that other members recognize the process when it joins again.
func sessionsOf(first SessionID) func() SessionID {
	return func() SessionID { return mark.Process(first) + newSessionID()[mark.ProcessLen:] }
}

// newSessionID returns a random 128-bit id, which is never reused (rule C3).
func newSessionID() SessionID {
	var b [16]byte
	rand.Read(b[:])
	return SessionID(hex.EncodeToString(b[:]))
}

// hostNode returns the host name, adapted to the grammar of names.
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
