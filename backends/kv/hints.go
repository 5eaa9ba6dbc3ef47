package kv

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// feedKind is what a lane tells about. Each has lanes of its own, so that claims
// do not queue behind commits, nor make the lanes of commits overflow.
type feedKind int

const (
	stateFeed feedKind = iota // the roster and the shards' records
	logFeed                   // chunks
	feedKinds
)

// lanePrefix begins the names of a kind's lanes.
func (k feedKind) lanePrefix() string { return [feedKinds]string{"state-", "log-"}[k] }

// laneKind is the kind of the lane under a key, and its name.
func (keys Keys) laneKind(key string) (k feedKind, name string, ok bool) {
	name, ok = strings.CutPrefix(key, keys.Feeds())
	if !ok {
		return 0, "", false
	}
	for k = range feedKinds {
		if strings.HasPrefix(name, k.lanePrefix()) {
			return k, name, true
		}
	}
	return 0, "", false
}

// A name in a lane is one of
//
//	shard/<shard>, member/<session>   a record, by its key below Keys.State
//	<shard>/<seq>                     a chunk, by its last entry's number in hexadecimal
//	!<lane>/<seq>                     a lane that was removed after its write number seq
//
// A word that begins with "=" is the detail of the name before it. What else is there
// is of a later version, and ignored.

// hints names what a batch may change, by kind. Chunks that are deleted need no
// hint: the head told of it first.
func (keys Keys) hints(b *Batch) (names [feedKinds][]string) {
	for i := range b.Txns {
		for _, op := range b.Txns[i].Ops {
			if name, ok := strings.CutPrefix(op.Key, keys.State()); ok {
				names[stateFeed] = append(names[stateFeed], name)
			} else if shard, last, ok := keys.splitChunk(op.Key); ok && !op.Delete {
				names[logFeed] = append(names[logFeed], string(shard)+"/"+strconv.FormatInt(int64(last), 16))
			}
		}
	}
	return names
}

// hinted is the key of the record that a name in a lane means, if it means one.
func (keys Keys) hinted(k feedKind, name string) (key string, ok bool) {
	kind, rest, ok := strings.Cut(name, "/")
	if !ok {
		return "", false
	}
	switch k {
	case stateFeed:
		switch kind {
		case "shard":
			return keys.Shard(driver.ShardID(rest)), driver.CheckShard(driver.ShardID(rest)) == nil
		case "member":
			return keys.Member(driver.SessionID(rest)), driver.CheckSession(driver.SessionID(rest)) == nil
		}
	case logFeed:
		last, err := strconv.ParseInt(rest, 16, 64)
		return keys.Chunk(driver.ShardID(kind), driver.Seq(last)), err == nil && last > 0 && driver.CheckShard(driver.ShardID(kind)) == nil
	}
	return "", false
}

// group is what a later hint may stand in for an earlier one by, and how many of
// one group are worth keeping: for a record one, of its own name. From the latest
// chunk of a shard a reader finds those before it, at the price of a read more.
func (k feedKind) group(name string) (string, int) {
	if shard, _, ok := strings.Cut(name, "/"); ok && k == logFeed && !strings.HasPrefix(name, farewell) {
		return shard, maxLaneChunks
	}
	return name, 1
}

// detail is what a lane's write says of the one record that it tells about, beside
// its name, so that a reader need not read it: a short chunk, or a shard's record and
// its head as the writer knows it. Only a batch of one transaction has one: of others
// a part may be refused, and the rider is written none the less. Empty for none.
func (keys Keys) detail(k feedKind, b *Batch) (text string) {
	if len(b.Txns) != 1 {
		return ""
	}
	t := &b.Txns[0]
	for _, op := range t.Ops {
		switch shard, ok := strings.CutPrefix(op.Key, keys.Shards()); {
		case k == logFeed && strings.HasPrefix(op.Key, keys.Logs()) && !op.Delete && len(op.Value) <= maxDetail:
			text = base64.RawURLEncoding.EncodeToString(op.Value)
		case k == stateFeed && ok && !op.Delete:
			text = detailText(op.Value)
			for _, p := range t.Known {
				if p.Key == keys.Head(driver.ShardID(shard)) {
					text += "," + strconv.FormatInt(int64(p.Rev), 10) + "," + detailText(p.Value)
				}
			}
		}
	}
	if len(text) > maxDetail || strings.ContainsAny(text, ": ") {
		return ""
	}
	return text
}

// undetailed makes a change out of a detail, if it is one.
func (keys Keys) undetailed(t toldKey) (c Change, ok bool) {
	c = Change{Key: t.key, Rev: t.rev}
	if t.detail == "" {
		return c, false
	}
	shard, ok := strings.CutPrefix(t.key, keys.Shards())
	if !ok {
		value, err := base64.RawURLEncoding.DecodeString(t.detail)
		c.Value = value
		return c, err == nil && strings.HasPrefix(t.key, keys.Logs())
	}
	record, known, hasHead := strings.Cut(t.detail, ",")
	c.Value = undetailedText(record)
	if _, err := decodeShard(Pair{Key: t.key, Value: c.Value, Rev: t.rev}); err != nil {
		return c, false
	}
	if !hasHead {
		return c, true
	}
	digits, value, _ := strings.Cut(known, ",")
	rev, err := strconv.ParseInt(digits, 10, 64)
	if err == nil && rev >= 0 && Rev(rev) < t.rev {
		head := Pair{Key: keys.Head(driver.ShardID(shard)), Rev: Rev(rev)}
		if rev > 0 {
			head.Value = undetailedText(value)
		}
		c.Known = []Pair{head}
	}
	return c, true
}

// detailText has no space, which separates a lane's words.
func detailText(record []byte) string { return strings.ReplaceAll(string(record), " ", ";") }

func undetailedText(text string) []byte { return []byte(strings.ReplaceAll(text, ";", " ")) }

// farewell begins the name of a lane that was removed. Who had read it up to its
// last write has missed nothing.
const farewell = "!"

func farewellTo(lane string, seq int64) string {
	return farewell + lane + "/" + strconv.FormatInt(seq, 10)
}

func splitFarewell(name string) (lane string, seq int64, ok bool) {
	rest, ok := strings.CutPrefix(name, farewell)
	if !ok {
		return "", 0, false
	}
	lane, digits, ok := strings.Cut(rest, "/")
	if !ok {
		return "", 0, false
	}
	seq, err := strconv.ParseInt(digits, 10, 64)
	return lane, seq, err == nil && seq > 0
}
