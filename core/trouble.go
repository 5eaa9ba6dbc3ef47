package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/rhythm"
)

const (
	// probeLock is the lock under which a member whose commits are denied tries one.
	probeLock  ShardID = driver.LockPrefix + "_probe"
	deniedWhy          = "the store denies its commits"
	maxTrouble         = 2 * maxReason // bytes that are published
	maxStuck           = 3             // handlers that are named
)

// trouble is what somebody has to mend about this member: calls that the store refuses (C18), and
// handlers that are stuck.
type trouble struct {
	wake   chan struct{}
	denied atomic.Bool // commits are: C18
	muted  atomic.Bool // no heartbeat is sent, so that others evict this member

	mu       sync.Mutex
	refusals map[string]*refusal // by kind of call
	lines    rhythm.Rhythm

	// Elector.mu guards these.
	text, public string    // for this process; for all members
	unfit        string    // Options.Eligible's reason
	probed       time.Time // when the last probe began
}

// refusal is since when a kind of call is refused, without a success between.
type refusal struct {
	since, last time.Time
	calls       int
	denied      bool
	err         error
	text        string // set once it has lasted
}

// heed takes in how a call ended, or its items if all failed. An error that does not tell whether
// the store serves such calls counts for nothing.
func (e *Elector) heed(kind string, err error) {
	denied := errors.Is(err, ErrDenied)
	if err != nil && !denied && (!errors.Is(err, ErrRetry) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return
	}
	t, now := &e.trouble, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.refusals[kind]
	switch {
	case err == nil && r == nil:
		return
	case err == nil:
		delete(t.refusals, kind)
		if _, due := t.lines.Worked(kind, now); due && r.text != "" {
			e.note.post(func() { e.note.info("tenure: store no longer refuses calls", slog.String("call", kind)) })
		}
	case r == nil || r.denied != denied || now.Sub(r.last) >= e.outdated():
		r = &refusal{since: now, denied: denied}
		t.refusals[kind] = r
		fallthrough
	default:
		r.last, r.err = now, err
		if r.calls++; r.calls > 1 {
			return
		}
	}
	t.signal()
}

func (t *trouble) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// outdated is how long after the last refusal nothing is known: two back-offs without a call.
func (e *Elector) outdated() time.Duration { return 2*e.o.BackoffMax + e.o.TTL }

// watchTrouble weighs the troubles while there are any, so often that each is logged within a TTL.
func (e *Elector) watchTrouble(ctx context.Context) {
	look := time.NewTicker(e.o.TTL / 6)
	defer look.Stop()
	for ctx.Err() == nil {
		var again <-chan time.Time
		if e.weigh(e.lasting(time.Now())) {
			again = look.C
		}
		select {
		case <-e.trouble.wake:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// lasting returns the refusals that have lasted, which it logs by their rhythm. denied is whether
// commits are denied, and keeps whether this member may not even give a shard back.
func (e *Elector) lasting(now time.Time) (all, public []string, denied, keeps, young bool) {
	t := &e.trouble
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(t.refusals)) {
		r := t.refusals[kind]
		keeps = keeps || r.denied && (kind == callRelease || kind == callTransfer)
		switch {
		case now.Sub(r.last) >= e.outdated():
			delete(t.refusals, kind)
			continue
		case now.Sub(r.since) < e.o.TTL*2/3:
			young = true
			continue
		case r.text == "":
			r.text = fmt.Sprintf("%s refused since %s: %v", kind, r.since.UTC().Format(time.RFC3339), r.err)
		}
		if all = append(all, r.text); r.denied {
			public = append(public, r.text)
			denied = denied || kind == callCommit
		}
		if _, due := t.lines.Failed(kind, now); due {
			attrs := []slog.Attr{slog.String("call", kind), slog.Int("calls", r.calls), slog.Time("since", r.since), slog.Any("error", r.err)}
			if r.denied {
				attrs = append(attrs, slog.String("remedy", "compare the rights and settings with docs/backends/"+e.info.Backend+".md"))
			}
			e.note.post(func() { e.note.warn("tenure: store refuses calls", attrs...) })
		}
	}
	return all, public, denied, keeps, young
}

// weigh shows and publishes the troubles, decides whether this member is eligible, and probes. It
// reports whether to look again.
func (e *Elector) weigh(all, public []string, denied, keeps, again bool) bool {
	t := &e.trouble
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase != running {
		return false
	}
	held, stuck := false, 0
	for _, s := range slices.Sorted(maps.Keys(e.runs)) {
		held = held || s != probeLock
		if r := e.runs[s]; r.state == LeaseStuck && stuck < maxStuck {
			stuck++
			text := fmt.Sprintf("stuck since %s: handler of shard %q: restart this process", r.stuck.UTC().Format(time.RFC3339), s)
			all, public = append(all, text), append(public, text)
		}
	}
	if text := strings.Join(all, "; "); text != t.text {
		t.text = text
		e.snap.bump()
	}
	if text := oneLine(strings.Join(public, "; "), maxTrouble); text != t.public {
		t.public = text
		st := e.m.State()
		st.Meta = troubled(st.Meta, text)
		e.queue = append(e.queue, fsm.Input{Kind: fsm.InUpdate, State: st})
	}
	t.denied.Store(denied)
	t.muted.Store(denied && keeps && held && e.successors(time.Now()) != 0)
	e.deem()
	if _, probing := e.contended[probeLock]; probing && !denied {
		e.unwant([]ShardID{probeLock}, "", ErrWithdrawn)
	} else if denied && !probing && time.Since(t.probed) >= e.o.BackoffMax {
		t.probed = time.Now()
		e.contended[probeLock] = e.probe
		e.queue = append(e.queue, fsm.Input{Kind: fsm.InWant, Shard: probeLock})
		e.drainQueue()
	}
	return again || t.text != ""
}

// deem gives the machine why this member is not eligible. e.mu is held.
func (e *Elector) deem() {
	why := e.trouble.unfit
	if e.trouble.denied.Load() {
		why = deniedWhy
	}
	if why != e.m.Ineligible() {
		e.queue = append(e.queue, fsm.Input{Kind: fsm.InEligible, Reason: why})
	}
	e.drainQueue()
}

// probe is a handler that tries each kind of operation, once.
func (e *Elector) probe(ctx context.Context, l *Lease) error {
	c, err := l.Commit(ctx, Put("probe", nil), Op{Kind: driver.OpAppend})
	if err == nil {
		_, err = l.Commit(ctx, Delete("probe"), Trim(c.Last))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unwant([]ShardID{probeLock}, "", ErrWithdrawn)
	return nil //nolint:nilerr // heed has it
}

// troubled returns metadata with what is published, if there is room, or without.
func troubled(meta map[string]string, text string) map[string]string {
	without := maps.Clone(meta)
	delete(without, driver.TroubleKey)
	if text == "" {
		return without
	}
	with := map[string]string{driver.TroubleKey: text}
	maps.Copy(with, without)
	if driver.CheckUpdate(MemberState{Meta: with, Update: 1}) != nil {
		return without
	}
	return with
}

// itemsError is the error of one of n items if all failed.
func itemsError(n int, of func(int) error) (err error) {
	for i := range n {
		if err = of(i); err == nil {
			return nil
		}
	}
	return err
}
