package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// These constants name this package's rows in the table of node labels.
const (
	// The row removedLabels counts the removals of labels. Every join compares this count, so a
	// join sent before a removal fails even if the label's row is absent (M3).
	removedLabels = "!removed"
	// endedLabels is the prefix of the names of endedSlots rows. Each row contains the session that
	// ended others at a revision.
	endedLabels = "!ended-"
	endedSlots  = 16
)

const (
	keepIdleLabels = driver.MaxIdleLabels / 2
	maxRemoval     = 2 * driver.MaxIdleLabels // labels, in one transaction
)

// Labels lists the node labels that have a row. See driver.LabelLister.
func (b *Backend) Labels(ctx context.Context) ([]string, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	var labels []string
	err := b.store.ReadRoster(ctx, func(ctx context.Context, roster *Tx) error {
		labels = nil
		return roster.rows(ctx, nodesAll, []any{b.name}, into(&labels))
	})
	return labels, b.readError(err)
}

func into(names *[]string) func(Row) error {
	return func(r Row) error {
		var name string
		if err := r.Scan(&name); err != nil {
			return err
		}
		*names = append(*names, name)
		return nil
	}
}

// If many node labels have no member, sweepLabels removes some of them. Otherwise, labels that
// change with every restart would fill the table. If the removal fails, for example because the
// role may not delete, the next join under a new label repeats it.
func (b *Backend) sweepLabels(ctx context.Context) {
	var idle []string
	look := func(ctx context.Context, roster *Tx) error {
		idle = nil
		return roster.rows(ctx, nodesIdle, []any{b.name, keepIdleLabels + maxRemoval}, into(&idle))
	}
	err := b.store.ReadRoster(ctx, look)
	if err != nil || len(idle) <= driver.MaxIdleLabels {
		return
	}
	// A session joins or ends only while the roster's row is locked, so labels that are idle here
	// stay idle.
	_ = b.writeRoster(ctx, func(ctx context.Context, roster *Tx, at int64) (int64, error) {
		if err := look(ctx, roster); err != nil || len(idle) <= driver.MaxIdleLabels {
			return at, err
		}
		var removals string
		if _, err := roster.row(ctx, nodeRead, []any{b.name, removedLabels}, &removals); err != nil {
			return at, err
		}
		n, _ := strconv.ParseInt(removals, 10, 64)
		if err := roster.write(ctx, nodesDelete, b.name, array(idle[:len(idle)-keepIdleLabels])); err != nil {
			return at, err
		}
		return at, roster.write(ctx, nodeWrite, b.name, removedLabels, strconv.FormatInt(n+1, 10))
	})
}

// noteEnd records which session ended the sessions that depart at a revision. No decision depends
// on this record, so a name that does not fit is omitted.
func (b *Backend) noteEnd(ctx context.Context, roster *Tx, how driver.Loss, by driver.SessionID, revision int64) error {
	if how == driver.LossClosed {
		return nil
	}
	note := fmt.Sprintf("%c%d %s", how[0], revision, by)
	if len(note) > driver.MaxSessionLen {
		return nil
	}
	return roster.write(ctx, nodeWrite, b.name, endedLabel(revision), note)
}

func endedLabel(revision int64) string {
	return fmt.Sprintf("%s%02d", endedLabels, revision%endedSlots)
}

// Explain returns how the session ended. See driver.Explainer.
func (s *session) Explain(ctx context.Context) *driver.SessionLostError {
	e := &driver.SessionLostError{Session: s.id}
	if s.closed.Load() {
		e.Cause = driver.LossClosed
		return e
	}
	found := *e
	err := s.b.store.ReadRoster(ctx, func(ctx context.Context, roster *Tx) error {
		found = *e
		var revision int64
		var note string
		ok, err := roster.row(ctx, departureRead, []any{s.b.name, string(s.id)}, &revision)
		if err != nil || !ok {
			return err
		}
		if ok, err = roster.row(ctx, nodeRead, []any{s.b.name, endedLabel(revision)}, &note); err != nil || !ok {
			return err
		}
		how, by, ok := strings.Cut(note, " ")
		if !ok || driver.CheckSession(driver.SessionID(by)) != nil {
			return nil
		}
		switch how {
		case fmt.Sprintf("e%d", revision):
			var node string
			if _, err := roster.row(ctx, memberNode, []any{s.b.name, by}, &node); err != nil {
				return err
			}
			found.Cause, found.By, found.Node = driver.LossEvicted, driver.SessionID(by), node
		case fmt.Sprintf("s%d", revision):
			found.Cause, found.By, found.Node = driver.LossSuperseded, driver.SessionID(by), s.node
		}
		return nil
	})
	if err != nil {
		return e
	}
	return &found
}
