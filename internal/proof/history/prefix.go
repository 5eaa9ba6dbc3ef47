package history

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// logIsPrefix checks that readers, followers and writers of a shard saw the same log. It finds
// entries that differ, that were never written (T3), that belong to a refused write (S16), or that
// were written twice (S15). It also finds gaps in a page or in the applied entries (L2, T4),
// decreasing tokens (T2), and acknowledged entries that are missing later (L2).
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

// logView is one shard's log, merged from all views.
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
				l.report("L2", []*Operation{op}, "a page after entry %d has entry %d where entry %d belongs", op.After,
					e.Seq, want)
				break
			}
		}
		if n := len(op.Entries); n > 0 && op.Entries[n-1].Seq > op.Head.Seq {
			l.report("L2", []*Operation{op}, "a page has entry %d, beyond its own head %d", op.Entries[n-1].Seq,
				op.Head.Seq)
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
				l.report("T4", []*Operation{op}, "%s began with entry %d, neither the first nor from a snapshot",
					op.Process, e.Seq)
			}
			l.position[op.Process] = e.Seq
		}
	default: // the others show no entries
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
			l.report("T3", []*Operation{first.by, op}, "entry %d is token %d, number %d, digest %s in one place and "+
				"token %d, number %d, digest %s in another",
				e.Seq, first.Token, first.Number, first.Digest, e.Token, e.Number, e.Digest)
		}
	}
}

// The findings are entries that no write appended (T3), and entries of a refused write (S16).
// Writes that took effect twice, or under the same number as another write, are findings too (S15).
func (l *logView) written(ops []*Operation) {
	type name struct {
		token  driver.Token
		number driver.WriteNo
	}
	writes := map[name][]*Operation{}
	wrote, refused := map[Entry]bool{}, map[Entry]bool{}
	for _, op := range kind(ops, Commit, "") {
		into := wrote
		if op.Outcome == Refused {
			into = refused
		} else {
			n := name{op.Fence.Token, op.Number}
			writes[n] = append(writes[n], op)
		}
		for _, e := range op.Entries {
			e.Seq = 0
			into[e] = true
		}
	}
	seqs := slices.Sorted(maps.Keys(l.at))
	for start, end := 0, 0; start < len(seqs); start = end {
		first := l.at[seqs[start]]
		var run []Entry
		known := true
		for end < len(seqs) && seqs[end] == first.Seq+driver.Seq(end-start) {
			s := l.at[seqs[end]]
			if s.Token != first.Token || s.Number != first.Number {
				break
			}
			e := s.Entry
			e.Seq = 0
			switch {
			case wrote[e]:
			case refused[e]:
				l.report("S16", []*Operation{s.by},
					"entry %d has token %d, number %d, digest %s, which only a write that was refused had",
					s.Seq, e.Token, e.Number, e.Digest)
			default:
				l.report("T3", []*Operation{s.by},
					"entry %d has token %d, number %d, digest %s, which no write that may have taken effect had",
					s.Seq, e.Token, e.Number, e.Digest)
			}
			known = known && wrote[e]
			run = append(run, e)
			end++
		}
		n := name{first.Token, first.Number}
		if known && !slices.ContainsFunc(writes[n], func(op *Operation) bool { return op.appends(run) }) {
			l.report("S15", append([]*Operation{first.by}, writes[n]...),
				"entries %d to %d have token %d and number %d, and no one write appended them",
				first.Seq, first.Seq+driver.Seq(len(run)-1), n.token, n.number)
		}
	}
}

// appends reports whether the write's entries contain run, ignoring positions.
func (o *Operation) appends(run []Entry) bool {
	for i := 0; i+len(run) <= len(o.Entries); i++ {
		if slices.EqualFunc(o.Entries[i:i+len(run)], run, func(e, r Entry) bool { e.Seq = 0; return e == r }) {
			return true
		}
	}
	return false
}

// order finds tokens and numbers that decrease along the log.
func (l *logView) order() {
	var last sighting
	for _, seq := range slices.Sorted(maps.Keys(l.at)) {
		s := l.at[seq]
		if last.by != nil && (s.Token < last.Token || s.Number < last.Number) {
			l.report("T2", []*Operation{last.by, s.by},
				"entry %d has token %d and number %d, after entry %d with token %d and number %d",
				seq, s.Token, s.Number, last.Seq, last.Token, last.Number)
		}
		last = s
	}
}

// acknowledged finds reads that show an outdated head although a newer commit was answered before
// the read began.
func (l *logView) acknowledged(ops []*Operation) {
	commits := slices.SortedFunc(slices.Values(kind(ops, Commit, OK)), byReturn)
	reads := slices.SortedFunc(slices.Values(kind(ops, Read, OK)),
		func(a, b *Operation) int { return cmp.Compare(a.Call, b.Call) })
	var newest *Operation
	for _, r := range reads {
		for len(commits) > 0 && commits[0].Return < r.Call {
			if newest == nil || commits[0].Head.Seq > newest.Head.Seq {
				newest = commits[0]
			}
			commits = commits[1:]
		}
		if newest != nil && r.Head.Seq < newest.Head.Seq {
			l.report("L2", []*Operation{newest, r}, "a read found the head at entry %d, although entry %d had been "+
				"acknowledged", r.Head.Seq, newest.Head.Seq)
		}
	}
}
