package core

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/internal/mark"
)

// maxReason is the maximum size of a published reason, in bytes.
const maxReason = 160

// notAsked is the reason why a member is ineligible before the first call to Options.Eligible.
const notAsked = "not asked yet"

// judge calls a function of the application every Options.Heartbeat, one call at a time, and passes
// each result to v. No lock is held during a call. When ctx has ended and the last call has returned,
// judge returns.
func (e *Elector) judge(ctx context.Context, ask func(context.Context) error, v *verdict) {
	tick := time.NewTicker(e.o.Heartbeat)
	defer tick.Stop()
	for ctx.Err() == nil {
		asked, cancel := context.WithTimeout(ctx, e.o.Heartbeat)
		answer := make(chan error, 1)
		go func() { answer <- goexit.Call(func() error { return ask(asked) }) }()
		select {
		case err := <-answer:
			if ctx.Err() == nil {
				v.say(reason(err))
			}
		case <-asked.Done():
			if ctx.Err() == nil {
				v.say(fmt.Sprintf("no answer within %v", e.o.Heartbeat))
			}
			<-answer // ignore a late answer
		}
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// verdict is the last result of such a function that was passed on.
type verdict struct {
	e    *Elector
	why  string
	at   time.Time
	into *string // guarded by Elector.mu
}

// say passes on the error's text, or "" for success. If only the text changes, it is passed on at
// most once per Options.Resync, because each change costs a write to the store.
func (v *verdict) say(why string) {
	if why == v.why || why != "" && v.why != "" && time.Since(v.at) < v.e.o.Resync {
		return
	}
	v.why, v.at = why, time.Now()
	v.e.mu.Lock()
	*v.into = why
	v.e.mu.Unlock()
	poke(v.e.trouble.wake)
}

// reason returns an error's text for publication: one line of up to maxReason bytes, or "" for nil.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return cmp.Or(oneLine(err.Error(), maxReason), "no reason given")
}

// oneLine turns text into one line of at most the given size in bytes.
func oneLine(text string, most int) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?")))
	if len(text) > most {
		const more = "..."
		text = strings.ToValidUTF8(text[:most-len(more)], "") + more
	}
	return text
}

// yieldErr returns the reason for stopping a handler in favor of another member. The caller must
// hold e.mu.
func (e *Elector) yieldErr(c fsm.Cause) error {
	if why := e.m.Ineligible(); c == fsm.CauseIneligible && why != "" {
		return fmt.Errorf("%w: %s", ErrIneligible, why)
	}
	return ErrFailback
}

// stored returns st with the largest metadata that Tenure may add to it.
func (o *Options) stored(st MemberState, lock *hostLock) MemberState {
	meta := make(map[string]string, len(st.Meta)+2)
	maps.Copy(meta, st.Meta)
	if o.Eligible != nil {
		meta[mark.IneligibleKey] = strings.Repeat("x", maxReason)
	}
	if lock != nil {
		meta[fsm.HostLockKey] = lock.id
	}
	st.Meta = meta
	return st
}

// checkState validates the state that an application wants to publish.
func (o *Options) checkState(st MemberState, lock *hostLock) error {
	if err := driver.CheckUpdate(st); err != nil {
		return err
	}
	if err := driver.CheckUpdate(o.stored(st, lock)); err != nil {
		return fmt.Errorf("%w, with what Tenure adds to Meta for Options.Eligible and LockDir: use fewer entries, or shorter ones", err)
	}
	return nil
}
