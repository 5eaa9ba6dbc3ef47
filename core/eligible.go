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
)

// maxReason bounds the bytes of a reason that is published.
const maxReason = 160

// notAsked is why a member is not eligible until Options.Eligible was asked.
const notAsked = "not asked yet"

// judge asks Options.Eligible each Options.Heartbeat, one call at a time, and tells the
// machine, until ctx ends and the last call has returned. No lock is held meanwhile.
func (e *Elector) judge(ctx context.Context) {
	tick := time.NewTicker(e.o.Heartbeat)
	defer tick.Stop()
	v := verdict{e: e, why: notAsked}
	for ctx.Err() == nil {
		asked, cancel := context.WithTimeout(ctx, e.o.Heartbeat)
		answer := make(chan error, 1)
		go func() { answer <- e.o.Eligible(asked) }()
		select {
		case err := <-answer:
			if ctx.Err() == nil {
				v.say(reason(err))
			}
		case <-asked.Done():
			if ctx.Err() == nil {
				v.say(fmt.Sprintf("no answer within %v", e.o.Heartbeat))
			}
			<-answer // of what came too late nothing follows
		}
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// verdict is what the machine was told last.
type verdict struct {
	e   *Elector
	why string
	at  time.Time
}

// say tells the machine why this member is not eligible, or that it is. Another reason
// alone is a write in the store, and waits for Options.Resync.
func (v *verdict) say(why string) {
	if why == v.why || why != "" && v.why != "" && time.Since(v.at) < v.e.o.Resync {
		return
	}
	v.why, v.at = why, time.Now()
	v.e.mu.Lock()
	v.e.trouble.unfit = why
	v.e.mu.Unlock()
	poke(v.e.trouble.wake)
}

// reason is the text of an error, made fit to be published: one line of up to maxReason
// bytes; empty for nil.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return cmp.Or(oneLine(err.Error(), maxReason), "no reason given")
}

// oneLine is a text as one line of up to most bytes.
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

// yieldErr is why a handler is asked to stop, so that another member has the shard. e.mu
// is held.
func (e *Elector) yieldErr(c fsm.Cause) error {
	if why := e.m.Ineligible(); c == fsm.CauseIneligible && why != "" {
		return fmt.Errorf("%w: %s", ErrIneligible, why)
	}
	return ErrFailback
}

// stored is a state with what Tenure adds to its metadata at most.
func (o *Options) stored(st MemberState, lock *hostLock) MemberState {
	meta := make(map[string]string, len(st.Meta)+2)
	maps.Copy(meta, st.Meta)
	if o.Eligible != nil {
		meta[driver.IneligibleKey] = strings.Repeat("x", maxReason)
	}
	if lock != nil {
		meta[fsm.HostLockKey] = lock.id
	}
	st.Meta = meta
	return st
}

// checkState validates what an application has a member tell the others.
func (o *Options) checkState(st MemberState, lock *hostLock) error {
	if err := driver.CheckUpdate(st); err != nil {
		return err
	}
	if err := driver.CheckUpdate(o.stored(st, lock)); err != nil {
		return fmt.Errorf("%w, with what Tenure adds to Meta for Options.Eligible and LockDir: use fewer entries, or shorter ones", err)
	}
	return nil
}
