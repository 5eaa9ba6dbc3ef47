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

// kind is the kind of records whose changes a change log lists. The kinds have separate change
// logs, so claims neither wait for commits nor displace their entries.
type kind int

const (
	stateKind kind = iota // the members' and the shards' records
	logKind               // chunks
	kinds
)

func (k kind) prefix() string { return [kinds]string{"state-", "log-"}[k] }

// kindOf returns the kind and the name of the change log stored under a key.
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

// The name of an entry has one of these forms:
//
//	shard/<shard>, member/<session>   a record, by its key below Keys.State
//	<shard>/<seq>                     a chunk, by its last entry's number in hexadecimal
//	!<change log>/<seq>               a tombstone: a change log that was removed after its write seq
//
// A word that begins with "=" is the inline value of the preceding entry. All other words are from
// a later version, and are ignored.

// The result contains the names of the records that a batch may change, by kind. A deleted chunk
// needs no entry, because the head has already shown the deletion.
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

// chunkName returns the name of the chunk stored under a key, if there is one.
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

// keyOf returns the key of the record that an entry names. If the entry names no record, ok is
// false.
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

// group returns the group of an entry, and the number of entries to keep in the group. Later
// entries of a group replace earlier entries. A record's group has one entry. A reader that has a
// shard's latest chunk finds the earlier chunks with one more read.
func (k kind) group(name string) (string, int) {
	if shard, _, ok := strings.Cut(name, "/"); ok && k == logKind && !strings.HasPrefix(name, tombstonePrefix) {
		return shard, maxChunks
	}
	return name, 1
}

// inlineValue returns the inline value of the only record that a batch changes, or "". The record
// is a short chunk, or a shard's record followed by the head. Readers need not read a record with
// an inline value. A batch of several transactions has no inline value, because the store may
// refuse some of them and still write the change log.
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

// changedKey is the key of a record that may have changed at revision rev or earlier. If changedKey
// has an inline value, the record changed to that value at rev.
type changedKey struct {
	key    string
	rev    kv.Rev
	inline string
	seq    int64 // the key's number in the observer
}

// The result is the change that the inline value represents, if the value is valid.
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
// is only one transaction, its head is also returned.
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

// tombstonePrefix is the prefix of a tombstone's name. A reader that has read the change log up to
// its last write has missed nothing.
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
