package sharding

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/core"
)

// assigner is the shard whose holder plans, and whose log has the plans.
const assigner = "_assigner"

// journal reads the assigner's log into a table.
type journal struct {
	read  readLog
	after core.Seq
	parts assembly
	table *assignments
	gap   error // why the table lacks what was read last; nil when it has everything
	since int   // bytes read or written since the last base
	base  int   // bytes of that

	form, newest byte // that is written, and the newest that is read
	highest      byte // in the log since the last base

	tell func(before, after *assignments) // of each plan that is read; may be nil
}

// ReadMap returns the map of the keyspace's ranges by the plans of a namespace, for tools. It is
// nil if there is none. The error matches core.ErrInvalid if the plans cannot be read.
func ReadMap(ctx context.Context, b core.Backend) (*Map, error) {
	t, err := readTable(ctx, b)
	if err != nil {
		return nil, err
	}
	return t.ranged(), nil
}

// ReadAside reads the plans of a namespace, for tools. The function that it returns says why a
// shard is not meant to have an owner: it is in quarantine, or its range was merged with another
// one. The error matches core.ErrInvalid if the plans cannot be read.
func ReadAside(ctx context.Context, b core.Backend) (func(shard string) core.Aside, error) {
	t, err := readTable(ctx, b)
	if err != nil {
		return nil, err
	}
	return t.asideOf, nil
}

// journalOf is a journal that reads through a backend.
func journalOf(b core.Backend) *journal {
	return &journal{table: &assignments{}, read: bounded(func(ctx context.Context, after core.Seq, max int) (*core.LogPage, error) {
		return b.ReadLog(ctx, assigner, after, max)
	})}
}

// readTable reads the table in force.
func readTable(ctx context.Context, b core.Backend) (*assignments, error) {
	j := journalOf(b)
	if _, err := j.catchUp(ctx); err != nil {
		return nil, err
	}
	if j.gap != nil {
		return nil, fmt.Errorf("tenure: %w: the plans of this namespace: %v", core.ErrInvalid, j.gap)
	}
	return j.table, nil
}

// readLog reads a page of the assigner's log.
type readLog func(ctx context.Context, after core.Seq, max int) (*core.LogPage, error)

// bounded gives each read a time-out of its own: a reply may be lost.
func bounded(read readLog) readLog {
	return func(ctx context.Context, after core.Seq, max int) (*core.LogPage, error) {
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return read(limited, after, max)
	}
}

// blind says why nothing is planned: there is a keyspace, and its plans cannot be understood. A
// plan that began the keyspace again would give its ranges to shards that do not have them.
func (j *journal) blind(k Keyspace) error {
	if j.gap == nil || k.Name == "" && j.table.keys.Name == "" {
		return nil
	}
	return fmt.Errorf("tenure: nothing is planned, as the plans are not understood: %w; if no version reads them, run tenure repair", j.gap)
}

const pageEntries = 64

// catchUp reads to the end of the log. It reports whether the table changed.
func (j *journal) catchUp(ctx context.Context) (changed bool, err error) {
	for {
		page, err := j.read(ctx, j.after, pageEntries)
		var trimmed *core.TrimmedError
		switch {
		case errors.As(err, &trimmed) && trimmed.Oldest > j.after+1:
			j.after, j.parts = trimmed.Oldest-1, assembly{}
			j.gap = fmt.Errorf("sharding: entry %d: no base begins there", trimmed.Oldest) // until one is read
			continue
		case err != nil:
			return changed, err
		case page.Head.Seq < j.after:
			// An older state of the store: core refuses what it must, we read anew.
			j.after, j.parts, j.table = 0, assembly{}, &assignments{}
			changed = true
			continue
		case len(page.Entries) == 0:
			return changed, nil
		}
		for i := range page.Entries {
			changed = j.add(&page.Entries[i]) || changed
		}
	}
}

// add takes in one entry. What cannot be understood leaves the table behind until
// the next base.
func (j *journal) add(e *core.Entry) (changed bool) {
	j.after = e.Seq
	j.since += len(e.Payload)
	j.parts.newest = j.newest
	c, err := j.parts.add(*e)
	if err != nil {
		j.gap = err
	} else {
		j.highest = max(j.highest, e.Payload[0])
	}
	if c == nil {
		return false
	}
	if !c.Base && j.gap != nil {
		return false
	}
	next, err := j.table.apply(c)
	if err != nil {
		j.gap = fmt.Errorf("entry %d: %w", e.Seq, err)
		return false
	}
	if j.tell != nil {
		j.tell(j.table, next)
	}
	j.table = next
	if c.Base {
		j.gap, j.base, j.since, j.highest = nil, j.since, 0, e.Payload[0]
	}
	return true
}

// partSize is how long a part of a plan is, at most, in a store.
func partSize(l core.Limits) int {
	if l.WriteBytes > 0 {
		return max(min(partBytes, l.WriteBytes-64), 64)
	}
	return partBytes
}

// Bounds of what is written after a base before the next, beside its own size.
const (
	baseEvery   = 256 << 10
	baseEntries = 512
)

// write appends a change and makes it in the table. When much was written since
// the last base, or what is there cannot be read, a base is written instead, and
// what it replaces is trimmed.
func (j *journal) write(ctx context.Context, lease *core.Lease, c *planChange, size int) error {
	next, err := j.table.apply(c)
	if err != nil {
		return err
	}
	head := lease.Head()
	if !c.Base && (j.gap != nil || j.highest > j.form || j.since > max(baseEvery, 2*j.base) || int(head.Seq-head.Oldest) > baseEntries) {
		c = next.base(c.Number)
	}
	first, bytes := core.Seq(0), 0
	c.form = j.form
	for _, part := range c.encode(size) {
		seq, err := lease.Append(ctx, part)
		if err != nil {
			return err
		}
		if first == 0 {
			first = seq
		}
		j.after = seq
		bytes += len(part)
	}
	j.table, j.parts = next, assembly{}
	j.since += bytes
	j.highest = max(j.highest, j.form)
	if c.Base {
		j.gap, j.base, j.since, j.highest = nil, bytes, 0, j.form
		if first > 1 {
			// If only this fails the log is longer than needed until the next base.
			if _, err := lease.Commit(ctx, core.Trim(first-1)); err != nil {
				return lease.Err()
			}
		}
	}
	return nil
}
