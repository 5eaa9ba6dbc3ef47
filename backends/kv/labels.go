package kv

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// These constants limit the number of kept and removed node labels.
const (
	keepIdleLabels = driver.MaxIdleLabels / 2
	maxRemoval     = 64  // labels, in one transaction
	maxForgotten   = 128 // sessions of removed labels that are kept
)

// removedRecord represents all removed node labels. Every removal writes this record, and every
// join compares it. A join sent before a removal therefore fails, even if the label's record is
// absent (rule M3). The removedRecord itself is never deleted.
type removedRecord struct {
	Format   int                `json:"v"`
	Sessions []driver.SessionID `json:"sessions,omitempty"` // the last sessions of removed labels
}

// decodeRemoved returns an empty record if p cannot be read. Only the record's revision matters,
// and the next removal rewrites the record.
func decodeRemoved(p Pair) removedRecord {
	r := removedRecord{Format: jsonFormat}
	if p.Rev == 0 || decodeJSON(p, &r, &r.Format) != nil {
		return removedRecord{Format: jsonFormat}
	}
	return r
}

func (r removedRecord) with(sessions []driver.SessionID) removedRecord {
	all := append(slices.Clone(r.Sessions), sessions...)
	return removedRecord{Format: jsonFormat, Sessions: all[max(0, len(all)-maxForgotten):]}
}

// Labels lists the node labels that have a record. See driver.LabelLister.
func (b *Backend) Labels(ctx context.Context) ([]string, error) {
	page, err := b.store.Range(ctx, Range{Prefix: b.keys.Nodes(), KeysOnly: true})
	if err != nil {
		return nil, b.readError(err)
	}
	labels := make([]string, 0, len(page.Pairs))
	for _, p := range page.Pairs {
		if label := strings.TrimPrefix(p.Key, b.keys.Nodes()); driver.CheckNode(label) == nil {
			labels = append(labels, label)
		}
	}
	return labels, nil
}

// sweepLabels removes some of the node labels without members if there are many. Otherwise, labels
// that change with every restart would fill the store. A failed removal is repeated at the next
// join under a new label.
func (b *Backend) sweepLabels(ctx context.Context) {
	idle, err := b.idleLabels(ctx)
	if err != nil || len(idle) <= driver.MaxIdleLabels {
		return
	}
	// A store may need two operations for each label, and one for the removedRecord.
	n := min(len(idle)-keepIdleLabels, maxRemoval, (b.info.Limits.WriteOps-1)/2)
	if n < 1 {
		return
	}
	// A label that cannot be removed, or that is about to be used, must not prevent the removal of
	// other labels.
	rand.Shuffle(len(idle), func(i, j int) { idle[i], idle[j] = idle[j], idle[i] })
	_ = b.removeLabels(ctx, idle[:n])
}

// idleLabels lists the labels without members if there are many labels. Because a member may join
// during the call, removeLabels reads the labels again.
func (b *Backend) idleLabels(ctx context.Context) ([]string, error) {
	labels, err := b.Labels(ctx)
	if err != nil || len(labels) <= driver.MaxIdleLabels {
		return nil, err
	}
	page, err := b.store.Range(ctx, Range{Prefix: b.keys.Members(), Largest: maxJSONRecord})
	if err != nil {
		return nil, err
	}
	live := make(map[string]bool, len(page.Pairs))
	for _, p := range page.Pairs {
		if m, err := decodeMember(p, driver.SessionID(strings.TrimPrefix(p.Key, b.keys.Members()))); err == nil {
			live[m.Node] = true
		}
	}
	return slices.DeleteFunc(labels, func(label string) bool { return live[label] }), nil
}

// removeLabels removes the labels whose sessions have all ended. The order of the reads matters.
// Every session in a label's record has joined, so a session that is missing from a later read has
// ended. If the label's record is unchanged, no other session has joined since.
func (b *Backend) removeLabels(ctx context.Context, labels []string) error {
	keys := []string{b.keys.Removed()}
	for _, label := range labels {
		keys = append(keys, b.keys.Node(label))
	}
	found, err := b.inspect(ctx, nil, keys)
	if err != nil {
		return err
	}
	removed, found := found[0], found[1:]
	var members []string
	sessions := make([][]driver.SessionID, len(found))
	for i, p := range found {
		n, err := decodeNode(p)
		if p.Rev == 0 || err != nil {
			continue // removed, or left to an operator
		}
		sessions[i] = n.Sessions
		for _, s := range n.Sessions {
			members = append(members, b.keys.Member(s))
		}
	}
	page, err := b.get(ctx, members)
	if err != nil {
		return err
	}
	alive := make(map[string]bool)
	for _, p := range page.Pairs {
		alive[p.Key] = p.Rev != 0
	}
	t := Txn{If: []Compare{{Key: b.keys.Removed(), Rev: removed.Rev}}}
	var gone []driver.SessionID
	for i, p := range found {
		if len(sessions[i]) == 0 || slices.ContainsFunc(sessions[i], func(s driver.SessionID) bool { return alive[b.keys.Member(s)] }) {
			continue
		}
		t.If = append(t.If, Compare{Key: p.Key, Rev: p.Rev})
		t.Ops = append(t.Ops, Op{Key: p.Key, Delete: true})
		gone = append(gone, sessions[i]...)
	}
	if len(gone) == 0 {
		return nil
	}
	value, err := encodeJSON(decodeRemoved(removed).with(gone))
	if err != nil {
		return err
	}
	t.Ops = append(t.Ops, Op{Key: b.keys.Removed(), Value: value})
	_, err = b.guarded(ctx, nil, &Batch{Txns: []Txn{t}})
	return err
}
