package sharding

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/seam"
)

// The owner of this reserved shard writes plans to its log.
const assigner = "_assigner"

type journal struct {
	read  readLog
	after core.Seq
	parts assembly
	table *assignments
	gap   error // why the table lacks the last entries that were read; nil if the table is complete
	since int   // number of bytes read or written since the last base
	base  int   // size of the last base, in bytes

	form, newest byte // the form that is written, and the newest form that is read
	highest      byte // the highest form in the log since the last base

	tell func(before, after *assignments) // called with each plan that is read; may be nil
}

// ReadPlans reads a namespace's plans, for tools in this module only, and returns the map of the
// keyspace's ranges, or nil without a keyspace. The function aside explains why a shard should have
// no owner: it is in quarantine, or its range was merged into another shard's range. If the plans
// cannot be decoded, the error matches core.ErrInvalid.
func ReadPlans(ctx context.Context, b core.Backend, _ seam.Key) (m *Map, aside func(shard string) seam.Aside, err error) {
	t, err := readTable(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	return t.ranged(), t.asideOf, nil
}

func journalOf(b core.Backend) *journal {
	return &journal{table: &assignments{}, read: bounded(func(ctx context.Context, after core.Seq, max int) (*core.LogPage, error) {
		return b.ReadLog(ctx, assigner, after, max)
	})}
}

// readTable reads the current table.
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

type readLog func(ctx context.Context, after core.Seq, max int) (*core.LogPage, error)

// bounded adds a time-out to each read, because a reply may be lost.
func bounded(read readLog) readLog {
	return func(ctx context.Context, after core.Seq, max int) (*core.LogPage, error) {
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return read(limited, after, max)
	}
}

// If a keyspace's plans cannot be understood, blind returns an error. Planning then stops, because
// a new first plan would assign ranges to shards that do not serve them.
func (j *journal) blind(k Keyspace) error {
	if j.gap == nil || k.Name == "" && j.table.keys.Name == "" {
		return nil
	}
	return fmt.Errorf("tenure: nothing is planned, as the plans are not understood: %w; if no version reads them, run tenure repair", j.gap)
}

const pageEntries = 64

// catchUp reads to the end of the log, and reports whether the table changed.
func (j *journal) catchUp(ctx context.Context) (changed bool, err error) {
	for {
		page, err := j.read(ctx, j.after, pageEntries)
		var trimmed *core.TrimmedError
		switch {
		case errors.As(err, &trimmed) && trimmed.Oldest > j.after+1:
			j.after, j.parts = trimmed.Oldest-1, assembly{}
			j.gap = fmt.Errorf("sharding: entry %d: no base begins there", trimmed.Oldest) // the gap lasts until a base is read
			continue
		case err != nil:
			return changed, err
		case page.Head.Seq < j.after:
			// The store has returned to an older state. Package core refuses unsafe operations, and
			// the journal reads the log again.
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

// If add does not understand the entry, the table is out of date until the next base.
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

func partSize(l core.Limits) int {
	if l.WriteBytes > 0 {
		return max(min(partBytes, l.WriteBytes-64), 64)
	}
	return partBytes
}

// The assigner writes a new base when the entries after the last base exceed these limits plus that
// base's size.
const (
	baseEvery   = 256 << 10
	baseEntries = 512
)

// write appends a change and applies it to the table. If the log has grown a lot since the last
// base, or cannot be understood, write appends a base instead, and trims the entries that the base
// replaces.
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
			// If only the trim fails, the log stays longer than needed until the next base.
			if _, err := lease.Commit(ctx, core.Trim(first-1)); err != nil {
				return lease.Err()
			}
		}
	}
	return nil
}
