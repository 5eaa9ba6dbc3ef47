package history

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// logIsPrefix finds that readers, followers and writers of a shard did not see
// one log: an entry that differs, or that nobody wrote (T3), a gap in a page or in
// what was applied (L2, T4), tokens that decrease (T2), and acknowledged entries
// that are missing later (L2).
func logIsPrefix(x *index) []Finding {
	var out []Finding
	for _, shard := range x.shards {
		l := &logView{shard: shard, at: map[driver.Seq]sighting{}, position: map[string]driver.Seq{}}
		for _, op := range x.of[shard] {
			l.look(op)
		}
		l.written(x.of[shard])
		l.order()
		l.acknowledged(x.of[shard])
		out = append(out, l.out...)
	}
	return out
}

type sighting struct {
	Entry
	by *Operation
}

// logView is one shard's log as all saw it together.
type logView struct {
	shard    driver.ShardID
	at       map[driver.Seq]sighting
	position map[string]driver.Seq // of each process's follower
	out      []Finding
}

func (l *logView) report(rule string, ops []*Operation, format string, args ...any) {
	l.out = append(l.out, finding(rule, CheckPrefix, l.shard, ops, format, args...))
}

func (l *logView) look(op *Operation) {
	if op.Outcome != OK {
		return
	}
	switch op.Kind {
	case Commit:
		l.see(op)
	case Read:
		l.see(op)
		for i, e := range op.Entries {
			if want := op.After + driver.Seq(i) + 1; e.Seq != want {
				l.report("L2", []*Operation{op}, "a page after entry %d has entry %d where entry %d belongs", op.After, e.Seq, want)
				break
			}
		}
		if n := len(op.Entries); n > 0 && op.Entries[n-1].Seq > op.Head.Seq {
			l.report("L2", []*Operation{op}, "a page has entry %d, beyond its own head %d", op.Entries[n-1].Seq, op.Head.Seq)
		}
	case Restore:
		l.position[op.Process] = op.After
	case Apply:
		l.see(op)
		for _, e := range op.Entries {
			last, began := l.position[op.Process]
			switch {
			case e.Seq == last+1:
			case began:
				l.report("T4", []*Operation{op}, "%s applied entry %d after entry %d", op.Process, e.Seq, last)
			default:
				l.report("T4", []*Operation{op}, "%s began with entry %d, neither the first nor from a snapshot", op.Process, e.Seq)
			}
			l.position[op.Process] = e.Seq
		}
	}
}

func (l *logView) see(op *Operation) {
	for _, e := range op.Entries {
		first, known := l.at[e.Seq]
		if !known {
			l.at[e.Seq] = sighting{e, op}
			continue
		}
		if first.Entry != e {
			l.report("T3", []*Operation{first.by, op}, "entry %d is token %d, number %d, digest %s in one place and token %d, number %d, digest %s in another",
				e.Seq, first.Token, first.Number, first.Digest, e.Token, e.Number, e.Digest)
		}
	}
}

// written finds entries that are of no write, or of one that was refused.
func (l *logView) written(ops []*Operation) {
	wrote := map[Entry]bool{}
	for _, op := range kind(ops, Commit, "") {
		if op.Outcome == Refused {
			continue
		}
		for _, e := range op.Entries {
			e.Seq = 0
			wrote[e] = true
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(l.at)) {
		s := l.at[seq]
		if e := s.Entry; !wrote[Entry{Token: e.Token, Number: e.Number, Digest: e.Digest}] {
			l.report("T3", []*Operation{s.by}, "entry %d has token %d, number %d, digest %s, which no write that may have taken effect had",
				seq, e.Token, e.Number, e.Digest)
		}
	}
}

// order finds tokens and numbers that decrease along the log.
func (l *logView) order() {
	var last sighting
	for _, seq := range slices.Sorted(maps.Keys(l.at)) {
		s := l.at[seq]
		if last.by != nil && (s.Token < last.Token || s.Number < last.Number) {
			l.report("T2", []*Operation{last.by, s.by}, "entry %d has token %d and number %d, after entry %d with token %d and number %d",
				seq, s.Token, s.Number, last.Seq, last.Token, last.Number)
		}
		last = s
	}
}

// acknowledged finds reads whose head is behind a commit that had been answered
// before they began.
func (l *logView) acknowledged(ops []*Operation) {
	commits := slices.SortedFunc(slices.Values(kind(ops, Commit, OK)), byReturn)
	reads := slices.SortedFunc(slices.Values(kind(ops, Read, OK)), func(a, b *Operation) int { return cmp.Compare(a.Call, b.Call) })
	var newest *Operation
	for _, r := range reads {
		for len(commits) > 0 && commits[0].Return < r.Call {
			if newest == nil || commits[0].Head.Seq > newest.Head.Seq {
				newest = commits[0]
			}
			commits = commits[1:]
		}
		if newest != nil && r.Head.Seq < newest.Head.Seq {
			l.report("L2", []*Operation{newest, r}, "a read found the head at entry %d, although entry %d had been acknowledged", r.Head.Seq, newest.Head.Seq)
		}
	}
}
