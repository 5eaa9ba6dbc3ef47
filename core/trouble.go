package core

import (
	"cmp"
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
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/internal/rhythm"
)

const (
	// A member whose commits are denied tries a commit under the lock probeLock.
	probeLock  ShardID = driver.LockPrefix + "_probe"
	deniedWhy          = "the store denies its commits"
	maxTrouble         = 2 * maxReason // maximum size of the published text, in bytes
)

// trouble contains this member's problems that an operator must fix: calls that the store refuses
// (C18), stuck handlers, and what Options.Trouble returns.
type trouble struct {
	wake   chan struct{}
	denied atomic.Bool // the store denies commits (C18)
	muted  atomic.Bool // no heartbeat is sent, so that others evict this member

	mu       sync.Mutex          // locked before Elector.mu
	refusals map[string]*refusal // by kind of call
	lines    rhythm.Rhythm
	probed   time.Time // when the last probe began

	// Elector.mu guards these fields.
	text, public string // the text for this process, and the text for all members
	unfit        string // Options.Eligible's reason
	reported     string // Options.Trouble's reason
}

// A refusal describes a kind of call that the store refuses.
type refusal struct {
	since, last time.Time
	denied      bool
	err         error
	text        string // set once the refusal has lasted long enough
}

// heed records the result of a call, or of its items if all of them failed. Errors that do not show
// whether the store serves such calls are ignored.
func (e *Elector) heed(kind string, err error) {
	denied := errors.Is(err, ErrDenied)
	if err != nil && !denied && (!errors.Is(err, ErrRetry) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return
	}
	t, now := &e.trouble, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch r := t.refusals[kind]; {
	case err == nil && r == nil:
		return
	case err == nil:
		delete(t.refusals, kind)
		if _, due := t.lines.Worked(kind, now); due && r.text != "" {
			e.note.post(func() { e.note.info("tenure: store no longer refuses calls", slog.String("call", kind)) })
		}
	case r == nil || r.denied != denied || e.outdated(r, now):
		t.refusals[kind] = &refusal{since: now, last: now, denied: denied, err: err}
	default:
		r.last, r.err = now, err
		return
	}
	poke(t.wake)
}

// outdated reports whether a refusal is too old to count, because no such call has ended for two
// back-offs and a TTL.
func (e *Elector) outdated(r *refusal, now time.Time) bool {
	return now.Sub(r.last) >= 2*e.o.BackoffMax+e.o.TTL
}

// While the member has troubles, watchTrouble calls weigh often enough to log each trouble within a
// TTL.
func (e *Elector) watchTrouble(ctx context.Context) {
	look := time.NewTicker(e.o.TTL / 6)
	defer look.Stop()
	for ctx.Err() == nil {
		var again <-chan time.Time
		if e.weigh(time.Now()) {
			again = look.C
		}
		select {
		case <-e.trouble.wake:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// weigh logs and publishes the troubles, decides whether this member is eligible, and starts
// probes. The result reports whether weigh must be called again.
func (e *Elector) weigh(now time.Time) bool {
	t := &e.trouble
	t.mu.Lock()
	defer t.mu.Unlock()
	var all, public []string
	denied, keeps, held, why := false, false, false, ""
	for _, kind := range slices.Sorted(maps.Keys(t.refusals)) {
		r := t.refusals[kind]
		keeps = keeps || r.denied && (kind == callRelease || kind == callTransfer)
		if e.outdated(r, now) {
			delete(t.refusals, kind)
			continue
		} else if now.Sub(r.since) < e.o.TTL*2/3 {
			continue
		}
		r.text = cmp.Or(r.text, fmt.Sprintf("%s refused since %s: %v", kind, r.since.UTC().Format(time.RFC3339), r.err))
		all = append(all, r.text)
		remedy := ""
		if r.denied {
			public = append(public, r.text)
			remedy = "compare the rights and settings with docs/backends/" + e.info.Backend + ".md"
			denied = denied || kind == callCommit
		}
		if _, due := t.lines.Failed(kind, now); due {
			attrs := []slog.Attr{slog.String("call", kind), slog.Time("since", r.since), slog.Any("error", r.err), slog.String("remedy", remedy)}
			e.note.post(func() { e.note.warn("tenure: store refuses calls", attrs...) })
		}
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase != running {
		return false
	}
	if why := e.reportedTrouble(now); why != "" {
		all, public = append(all, why), append(public, why)
	}
	for _, s := range slices.Sorted(maps.Keys(e.runs)) {
		held = held || s != probeLock
		if r := e.runs[s]; r.state == LeaseStuck && len(all) < 8 {
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
	t.muted.Store(denied && keeps && held && e.successors(now) != 0)
	if denied {
		why = deniedWhy
	}
	if why = cmp.Or(why, t.unfit); why != e.m.Ineligible() {
		e.queue = append(e.queue, fsm.Input{Kind: fsm.InEligible, Reason: why})
	}
	if _, probing := e.contended[probeLock]; denied && !probing && now.Sub(t.probed) >= e.o.BackoffMax {
		t.probed = now
		e.contended[probeLock] = e.probe
		e.queue = append(e.queue, fsm.Input{Kind: fsm.InWant, Shard: probeLock})
	} else if probing && !denied {
		defer e.unwant([]ShardID{probeLock}, "", ErrWithdrawn)
	}
	e.drainQueue()
	return len(t.refusals) > 0 || t.reported != ""
}

// reportedTrouble returns what Options.Trouble returned last, and logs it. The caller holds
// trouble.mu and Elector.mu.
func (e *Elector) reportedTrouble(now time.Time) string {
	const key = "Options.Trouble"
	t := &e.trouble
	if why := t.reported; why == "" {
		if _, due := t.lines.Worked(key, now); due {
			e.note.post(func() { e.note.info("tenure: process reports no more trouble") })
		}
	} else if _, due := t.lines.Failed(key, now); due {
		e.note.post(func() { e.note.warn("tenure: process reports trouble", slog.String("trouble", why)) })
	}
	return t.reported
}

// probe is a handler that tries each kind of operation once, so that heed gets the results.
func (e *Elector) probe(ctx context.Context, l *Lease) error {
	if c, err := l.Commit(ctx, Put("probe", nil), Op{Kind: driver.OpAppend}); err == nil {
		_, _ = l.Commit(ctx, Delete("probe"), Trim(c.Last))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unwant([]ShardID{probeLock}, "", ErrWithdrawn)
	return nil
}

// troubled returns the metadata with the published text if it fits, and otherwise without it.
func troubled(meta map[string]string, text string) map[string]string {
	without := maps.Clone(meta)
	delete(without, mark.TroubleKey)
	with := map[string]string{mark.TroubleKey: text}
	maps.Copy(with, without)
	if text == "" || driver.CheckUpdate(MemberState{Meta: with, Update: 1}) != nil {
		return without
	}
	return with
}

// itemsError returns the error of one of n items if all of them failed, and nil otherwise.
func itemsError(n int, of func(int) error) (err error) {
	for i := range n {
		if err = of(i); err == nil {
			return nil
		}
	}
	return err
}
