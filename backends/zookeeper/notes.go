package zookeeper

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/backends/kv"
)

// A lane that tells of one shard's change, and of nothing else, has notes below its
// own line: one line for each record whose mark who reads the lane will need.
//
//	!state/shard/s1 0 4294967310 7    revision, or 0 for the lane's own, created, version
//
// A revision fixes the mark for ever, so a note is never wrong, only out of date.

// annotated is the rider with notes.
func (a *application) annotated() txn {
	if len(a.txns) != 1 || len(a.rider.ops) == 0 {
		return a.rider
	}
	var notes []byte
	for _, op := range a.txns[0].ops {
		if _, part := partOf(op.key); part != "!state" || op.delete {
			continue
		}
		for _, c := range a.txns[0].conds {
			if c.key == op.key && c.rev > 0 {
				_, m := a.known.judge(c)
				notes = appendNote(notes, c.key, mark{0, m.created, m.version + 1})
			}
		}
	}
	if notes == nil {
		return a.rider
	}
	for _, p := range a.batch.Txns[0].Known {
		if m, ok := a.marks.get(p.Key); ok && m.rev == p.Rev {
			notes = appendNote(notes, p.Key, m)
		}
	}
	rider := txn{conds: a.rider.conds, ops: make([]write, len(a.rider.ops))}
	for i, op := range a.rider.ops {
		if !op.delete {
			op.value = append(bytes.Clone(op.value), notes...)
		}
		rider.ops[i] = op
	}
	return rider
}

func appendNote(b []byte, key string, m mark) []byte {
	ns, _ := partOf(key)
	return fmt.Appendf(b, "\n%s %d %d %d", key[len(ns)+1:], m.rev, m.created, m.version)
}

// split takes the notes off a lane.
func (f *found) split(node string) {
	if strings.Contains(node, "/!feed/") {
		f.value, f.notes, _ = bytes.Cut(f.value, []byte{'\n'})
	}
}

// note remembers the marks that a lane's notes tell. Any member can have written them:
// what is no key is left out.
func (s *store) note(lane string, f found) {
	if len(f.notes) == 0 || len(f.notes) > kv.MaxRiderBytes {
		return
	}
	ns, _ := partOf(lane)
	for text := range strings.SplitSeq(string(f.notes), "\n") {
		words := strings.Split(text, " ")
		if len(words) < 4 {
			continue // of a later version
		}
		rev, err1 := strconv.ParseInt(words[1], 10, 64)
		created, err2 := strconv.ParseInt(words[2], 10, 64)
		version, err3 := strconv.ParseInt(words[3], 10, 32)
		if err1 != nil || err2 != nil || err3 != nil {
			continue
		}
		m := mark{kv.Rev(rev), created, int32(version)}
		if rev == 0 {
			m.rev = f.mark.rev
		}
		key := ns + "/" + words[0]
		part, _, below := strings.Cut(words[0], "/")
		if part != "!state" && part != "!head" || !below {
			continue
		}
		if _, _, err := s.paths.node(key); err == nil && m.rev > 0 && m.rev <= f.mark.rev && created > 0 && version >= 0 {
			s.marks.put(key, m)
		}
	}
}
