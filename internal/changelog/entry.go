package changelog

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/kvrecord"
)

// kind is the kind of records whose changes a change log lists. Each kind has its own change
// logs, so that claims neither queue behind commits nor push their entries out.
type kind int

const (
	stateKind kind = iota // the members' and the shards' records
	logKind               // chunks
	kinds
)

// prefix returns the beginning of the names of a kind's change logs.
func (k kind) prefix() string { return [kinds]string{"state-", "log-"}[k] }

// kindOf returns the kind and the name of the change log under a key.
func kindOf(keys kvkeys.Keys, key string) (k kind, name string, ok bool) {
	name, ok = strings.CutPrefix(key, keys.ChangeLogs())
	if !ok {
		return 0, "", false
	}
	for k = range kinds {
		if strings.HasPrefix(name, k.prefix()) {
			return k, name, true
		}
	}
	return 0, "", false
}

// The name of an entry is one of
//
//	shard/<shard>, member/<session>   a record, by its key below Keys.State
//	<shard>/<seq>                     a chunk, by its last entry's number in hexadecimal
//	!<change log>/<seq>               a tombstone: a change log that was removed after its write seq
//
// A word that begins with "=" is the inline value of the entry before it. Other words are from a
// later version, and are ignored.

// changed returns the names of the records that a batch may change, by kind. Deleted chunks need no
// entry, because the head has already shown it.
func changed(keys kvkeys.Keys, b *kv.Batch) (names [kinds][]string) {
	for i := range b.Txns {
		for _, op := range b.Txns[i].Ops {
			if name, ok := strings.CutPrefix(op.Key, keys.State()); ok {
				names[stateKind] = append(names[stateKind], name)
			} else if name, ok := chunkName(keys, op.Key); ok && !op.Delete {
				names[logKind] = append(names[logKind], name)
			}
		}
	}
	return names
}

// chunkName returns the name of the chunk under a key, if the key is a chunk's.
func chunkName(keys kvkeys.Keys, key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, keys.Logs())
	if !ok {
		return "", false
	}
	shard, digits, _ := strings.Cut(rest, "/")
	last, err := strconv.ParseInt(digits, 16, 64)
	name = shard + "/" + strconv.FormatInt(last, 16)
	named, ok := keyOf(keys, logKind, name)
	return name, err == nil && ok && named == key
}

// keyOf returns the key of the record that an entry names, if it names one.
func keyOf(keys kvkeys.Keys, k kind, name string) (key string, ok bool) {
	first, rest, ok := strings.Cut(name, "/")
	if !ok {
		return "", false
	}
	switch k {
	case stateKind:
		switch first {
		case "shard":
			return keys.Shard(driver.ShardID(rest)), driver.CheckShard(driver.ShardID(rest)) == nil
		case "member":
			return keys.Member(driver.SessionID(rest)), driver.CheckSession(driver.SessionID(rest)) == nil
		}
	case logKind:
		shard := driver.ShardID(first)
		last, err := strconv.ParseInt(rest, 16, 64)
		return keys.Chunk(shard, driver.Seq(last)), err == nil && last > 0 && driver.CheckShard(shard) == nil
	default: // other kinds have no entries
	}
	return "", false
}

// group returns the group of an entry, and the number of a group's entries to keep. A later
// entry of a group replaces earlier ones. A record has its own group, of one entry. With the
// latest chunk of a shard, a reader finds the chunks before it in one more read.
func (k kind) group(name string) (string, int) {
	if shard, _, ok := strings.Cut(name, "/"); ok && k == logKind && !strings.HasPrefix(name, tombstonePrefix) {
		return shard, maxChunks
	}
	return name, 1
}

// inlineValue returns the value of the one record that a batch changes, as its entry has it, or
// "". It is a short chunk, or a shard's record and the head behind it. Readers need not read
// such a record. A batch of several transactions has none, because some of them may be refused
// although the change log is written.
func inlineValue(keys kvkeys.Keys, k kind, b *kv.Batch) (text string) {
	if len(b.Txns) != 1 {
		return ""
	}
	for _, op := range b.Txns[0].Ops {
		switch {
		case op.Delete:
		case k == logKind && strings.HasPrefix(op.Key, keys.Logs()) && len(op.Value) <= maxInline:
			text = base64.RawURLEncoding.EncodeToString(op.Value)
		case k == stateKind && strings.HasPrefix(op.Key, keys.Shards()):
			shard, head, ok := kvrecord.CutHead(op.Value)
			text = escape(shard)
			if ok {
				text += "," + strconv.FormatInt(head.Rev, 10) + "," + escape(head.Text)
			}
		}
	}
	if len(text) > maxInline || strings.ContainsAny(text, ": ") {
		return ""
	}
	return text
}

// changedKey is a record that may have changed, at the latest at revision rev. If it has an inline
// value, it changed to that value at rev.
type changedKey struct {
	key    string
	rev    kv.Rev
	inline string
	seq    int64 // its number in the observer
}

// change returns the change that the inline value stands for, if it is valid.
func (c changedKey) change(keys kvkeys.Keys) (kv.Change, bool) {
	change := kv.Change{Key: c.key, Rev: c.rev}
	if c.inline == "" {
		return change, false
	}
	if !strings.HasPrefix(c.key, keys.Shards()) {
		value, err := base64.RawURLEncoding.DecodeString(c.inline)
		change.Value = value
		return change, err == nil && strings.HasPrefix(c.key, keys.Logs())
	}
	shard, head, hasHead := strings.Cut(c.inline, ",")
	change.Value = unescape(shard)
	if _, reason := kvrecord.ParseShard(change.Value); reason != "" {
		return change, false
	}
	digits, text, _ := strings.Cut(head, ",")
	if rev, err := strconv.ParseInt(digits, 10, 64); hasHead && err == nil && rev >= 0 {
		change.Value = kvrecord.AppendHead(change.Value, kvrecord.Head{Rev: rev, Text: unescape(text)})
	}
	return change, true
}

// escape replaces spaces, which separate the words of a change log.
func escape(text []byte) string { return strings.ReplaceAll(string(text), " ", ";") }

func unescape(text string) []byte { return []byte(strings.ReplaceAll(text, ";", " ")) }

// withoutHeads removes the heads from the shards' records, which are stored without them. If there
// is only one transaction, it also returns the head.
func withoutHeads(keys kvkeys.Keys, txns []kv.Txn) (stored []kv.Txn, head kv.Compare) {
	stored = txns
	for i := range txns {
		for n, op := range txns[i].Ops {
			name, ok := strings.CutPrefix(op.Key, keys.Shards())
			if !ok {
				continue
			}
			shard, known, ok := kvrecord.CutHead(op.Value)
			if !ok {
				continue
			}
			if &stored[0] == &txns[0] { // the caller's slice must not change
				stored = slices.Clone(txns)
			}
			if &stored[i].Ops[0] == &txns[i].Ops[0] {
				stored[i].Ops = slices.Clone(txns[i].Ops)
			}
			stored[i].Ops[n].Value = shard
			head = kv.Compare{Key: keys.Head(driver.ShardID(name)), Rev: kv.Rev(known.Rev)}
		}
	}
	if len(txns) != 1 {
		head = kv.Compare{}
	}
	return stored, head
}

// tombstonePrefix begins the name of a tombstone. A reader that had read the change log up to its
// last write has missed nothing.
const tombstonePrefix = "!"

func tombstone(name string, seq int64) string {
	return tombstonePrefix + name + "/" + strconv.FormatInt(seq, 10)
}

func splitTombstone(text string) (name string, seq int64, ok bool) {
	rest, ok := strings.CutPrefix(text, tombstonePrefix)
	if !ok {
		return "", 0, false
	}
	name, digits, ok := strings.Cut(rest, "/")
	if !ok {
		return "", 0, false
	}
	seq, err := strconv.ParseInt(digits, 10, 64)
	return name, seq, err == nil && seq > 0
}
