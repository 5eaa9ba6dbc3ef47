package kv

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// writers are this process's lanes of one kind. One transaction at a time carries
// a lane, since each compares the one before; who finds all taken waits.
type writers struct {
	kind     feedKind
	instance string
	slots    chan struct{} // holds one token for each lane that is taken

	mu    sync.Mutex
	lanes []*writer
	named int // names given so far
}

// writer is one lane of this process. Only who has taken it may touch it.
type writer struct {
	name  string
	taken bool // guarded by writers.mu
	// What the lane's record is, as far as known: after an outcome that is unknown,
	// or a refusal, it is read before the lane is used again. A request that is
	// still on its way cannot be applied after the next one, which moves the record.
	known bool
	rev   Rev // 0: there is no record
	lane  lane
}

func (w *writers) init(kind feedKind, instance string, n int) {
	w.kind, w.instance = kind, instance
	w.slots = make(chan struct{}, n)
	w.lanes = make([]*writer, n)
	for i := range w.lanes {
		w.lanes[i] = &writer{}
		w.rename(w.lanes[i])
	}
}

// rename gives a lane a name that none has had: a record that somebody removed, or
// damaged, is not written again, so that nobody takes its end for a new beginning.
func (w *writers) rename(l *writer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.named++
	l.name = w.kind.lanePrefix() + w.instance + "-" + strconv.Itoa(w.named)
	l.known, l.rev, l.lane = true, 0, lane{}
}

// take waits for a free lane. The first ones are preferred, so that a process has
// as many records as it has transactions under way.
func (w *writers) take(ctx context.Context) (*writer, error) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, notSent(fmt.Errorf("tenure: waiting for other writes: %w", ctx.Err()))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lanes[slices.IndexFunc(w.lanes, func(l *writer) bool { return !l.taken })]
	l.taken = true
	return l, nil
}

func (w *writers) give(l *writer) {
	w.mu.Lock()
	l.taken = false
	w.mu.Unlock()
	<-w.slots
}

// mine reports whether a lane is one that this process may still write.
func (w *writers) mine(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lanes {
		if l.name == name {
			return true
		}
	}
	return false
}

// maxRefusals is how often a batch is sent again because its rider was refused.
// Each time something that was late, or somebody who removes lanes, came between.
const maxRefusals = 8

// Apply adds the hints of what the batch changes, as its rider. Heartbeats change
// nothing that is hinted, so they never wait for a lane (rule E4).
func (f *feeds) Apply(ctx context.Context, b *Batch) (*Outcome, error) {
	names := f.keys.hints(b)
	var taken [feedKinds]*writer
	for k := range feedKinds {
		if len(names[k]) == 0 {
			continue
		}
		l, err := f.writers[k].take(ctx)
		if err != nil {
			return nil, err
		}
		defer f.writers[k].give(l)
		taken[k] = l
	}
	if taken == [feedKinds]*writer{} {
		return f.plain.Apply(ctx, b)
	}
	sent := *b
	for refused := range maxRefusals {
		rider := &Txn{}
		var next [feedKinds]lane
		for k, l := range taken {
			if l == nil {
				continue
			}
			if err := f.recall(ctx, feedKind(k), l); err != nil {
				return nil, notSent(err)
			}
			told := names[k]
			// One who writes anyway takes a lane along that nobody writes any more. If
			// the rider was refused that may have been why.
			if dead, at, ok := f.dead(feedKind(k)); ok && refused == 0 && len(rider.Ops)+2 <= MaxRiderOps {
				rider.If = append(rider.If, Compare{Key: f.keys.Feed(dead), Rev: at.rev})
				rider.Ops = append(rider.Ops, Op{Key: f.keys.Feed(dead), Delete: true})
				told = append([]string{farewellTo(dead, at.seq)}, told...)
			}
			next[k] = l.lane.with(feedKind(k), told, time.Now())
			if len(names[k]) == 1 {
				next[k] = next[k].detailed(names[k][0], f.keys.detail(feedKind(k), b))
			}
			rider.If = append(rider.If, Compare{Key: f.keys.Feed(l.name), Rev: l.rev})
			rider.Ops = append(rider.Ops, Op{Key: f.keys.Feed(l.name), Value: next[k].encode()})
		}
		sent.Rider = rider
		out, err := f.plain.Apply(ctx, &sent)
		for k, l := range taken {
			if l != nil {
				l.settle(next[k], out, err)
			}
		}
		if err != nil {
			return nil, err
		}
		if !out.RiderRefused {
			return out, told(out)
		}
	}
	return nil, retry("the lanes of its hints moved too often")
}

// settle takes over what is known of a lane after a batch that carried it.
func (l *writer) settle(next lane, out *Outcome, err error) {
	switch {
	case err != nil:
		l.known = driver.NotApplied(err)
	case out.Refused:
	case out.Rider.OK && out.Rider.Rev > 0:
		l.rev, l.lane = out.Rider.Rev, next.written(out.Rider.Rev)
	default:
		l.known = !out.RiderRefused && !out.Rider.OK && told(out) == nil
		for _, r := range out.Results {
			l.known = l.known && r.Err == nil
		}
	}
}

// told is an error if something was applied without its hint: by a store that
// does not keep to its contract, and of which nobody would learn.
func told(out *Outcome) error {
	if out.Refused || out.Rider.OK {
		return nil
	}
	for _, r := range out.Results {
		if r.OK {
			return fmt.Errorf("tenure: the store applied a write without the rider that has to go with it")
		}
	}
	return nil
}

// recall reads a lane whose record is not known, and leaves one that was removed.
func (f *feeds) recall(ctx context.Context, k feedKind, l *writer) error {
	if l.known {
		f.mu.Lock()
		removed := f.journals[k].removed(l.name, l.rev, f.told)
		f.mu.Unlock()
		if removed {
			f.writers[k].rename(l)
		}
		return nil
	}
	page, err := f.plain.Get(ctx, f.keys.Feed(l.name))
	if err != nil {
		return err
	}
	if len(page.Pairs) != 1 {
		return fmt.Errorf("tenure: the store answered %d of 1 keys", len(page.Pairs))
	}
	v, err := decodeLane(page.Pairs[0])
	if err != nil { // which a missing record is as well
		f.writers[k].rename(l)
		return nil
	}
	l.known, l.rev, l.lane = true, page.Pairs[0].Rev, v
	return nil
}

// dead picks a lane that nobody has written for as long as lanes are kept.
func (f *feeds) dead(k feedKind) (string, laneSeen, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.journals[k].stale(time.Now(), f.retention, f.writers[k].mine)
}
