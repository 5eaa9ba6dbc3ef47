package zookeeper

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/internal/changelog"
)

// If the latest write in a change log concerns only one shard, its line is followed by stats. Each
// record whose stat a reader needs has one line.
//
//	!state/shard/s1 0 4294967310 7    revision, or 0 for the change log's own, created, version
//
// A revision determines the stat, so a stat can be outdated but not wrong.

// withStats returns the piggybacked transaction with stats in the change log.
func (a *application) withStats() txn {
	if len(a.txns) != 1 || len(a.piggyback.ops) == 0 {
		return a.piggyback
	}
	var lines []byte
	for _, op := range a.txns[0].ops {
		if _, part := partOf(op.key); part != "!state" || op.delete {
			continue
		}
		for _, c := range a.txns[0].conds {
			if c.key == op.key && c.rev > 0 {
				_, m := a.known.judge(c)
				lines = appendStat(lines, c.key, stat{0, m.created, m.version + 1})
			}
		}
	}
	if lines == nil {
		return a.piggyback
	}
	if head := a.batch.Head; head.Key != "" {
		if m, ok := a.stats.get(head.Key); ok && m.rev == head.Rev {
			lines = appendStat(lines, head.Key, m)
		}
	}
	t := txn{conds: a.piggyback.conds, ops: make([]write, len(a.piggyback.ops))}
	for i, op := range a.piggyback.ops {
		if !op.delete {
			op.value = append(bytes.Clone(op.value), lines...)
		}
		t.ops[i] = op
	}
	return t
}

func appendStat(b []byte, key string, m stat) []byte {
	ns, _ := partOf(key)
	return fmt.Appendf(b, "\n%s %d %d %d", key[len(ns)+1:], m.rev, m.created, m.version)
}

// split removes the stats from a change log.
func (f *found) split(node string) {
	if strings.Contains(node, "/!feed/") {
		f.value, f.sent, _ = bytes.Cut(f.value, []byte{'\n'})
	}
}

// learnSent keeps the stats in a change log. Because any member may have written these stats, lines
// without a valid key are ignored.
func (s *store) learnSent(log string, f found) {
	if len(f.sent) == 0 || len(f.sent) > changelog.MaxPiggybackBytes {
		return
	}
	ns, _ := partOf(log)
	for text := range strings.SplitSeq(string(f.sent), "\n") {
		words := strings.Split(text, " ")
		if len(words) < 4 {
			continue // from a later version
		}
		rev, err1 := strconv.ParseInt(words[1], 10, 64)
		created, err2 := strconv.ParseInt(words[2], 10, 64)
		version, err3 := strconv.ParseInt(words[3], 10, 32)
		if err1 != nil || err2 != nil || err3 != nil {
			continue
		}
		m := stat{kv.Rev(rev), created, int32(version)}
		if rev == 0 {
			m.rev = f.stat.rev
		}
		key := ns + "/" + words[0]
		part, _, below := strings.Cut(words[0], "/")
		if part != "!state" && part != "!head" || !below {
			continue
		}
		if _, _, err := s.paths.node(key); err == nil && m.rev > 0 && m.rev <= f.stat.rev && created > 0 &&
			version >= 0 {
			s.stats.put(key, m)
		}
	}
}
