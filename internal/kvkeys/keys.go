// Package kvkeys builds the keys under which package kv stores its records.
package kvkeys

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// EndedSlots is the number of slots in which the store records evictions. A later eviction in the
// same slot replaces an earlier one.
const EndedSlots = 16

// Keys builds the keys of one namespace. Fixed parts start with "!". No name may start with "!", so
// the keys of namespaces "a" and "a/b" never overlap. A name is followed by "/" or by the end of
// the key, so shard "1" never matches "10".
//
//	<ns>/!id                      identity: a random id and the base of tokens
//	<ns>/!incarnation             the history of the store, where the store identifies it
//	<ns>/!node/<label>            the sessions that joined last under a node label
//	<ns>/!node/!removed           a tombstone for removed labels; permanent
//	<ns>/!node/!ended-<slot>      the evictor of a session
//	<ns>/!state/member/<session>  a member: written by join and update
//	<ns>/!state/shard/<shard>     owner, and the last leases; permanent
//	<ns>/!beat/<session>          the record that a heartbeat changes
//	<ns>/!head/<shard>            number of commits, head of the log
//	<ns>/!log/<shard>/<seq>       the entries of one commit, under the last one's number
//	<ns>/!feed/<name>             a change log, where a store has no watch: see package changelog
//	<ns>/!item/<shard>/<key>      an item: the application's bytes as they are
//	<ns>/!probe/<random>          scratch key while opening
type Keys string

// New returns the keys of a namespace. The error matches driver.ErrInvalid.
func New(namespace string) (Keys, error) {
	return Keys(namespace), driver.CheckNamespace(namespace)
}

// Identity returns the key of the namespace's identity record.
func (k Keys) Identity() string { return string(k) + "/!id" }

// Incarnation returns the key of the store's incarnation record.
func (k Keys) Incarnation() string { return string(k) + "/!incarnation" }

// Node returns the key of a node label's record.
func (k Keys) Node(label string) string { return string(k) + "/!node/" + label }

// Ended returns the key of the record that may show how a session ended.
func (k Keys) Ended(s driver.SessionID) string {
	h := fnv.New32a()
	h.Write([]byte(s))
	return k.EndedSlot(h.Sum32() % EndedSlots)
}

// EndedSlot returns the key of the n-th record of ended sessions.
func (k Keys) EndedSlot(n uint32) string { return fmt.Sprintf("%s!ended-%02d", k.Nodes(), n) }

// Nodes returns the key prefix of the node labels' records.
func (k Keys) Nodes() string { return string(k) + "/!node/" }

// Removed returns the key of the record that every removal of a node label changes.
func (k Keys) Removed() string { return string(k) + "/!node/!removed" }

// State returns the key prefix of the roster's and the shards' records.
func (k Keys) State() string { return string(k) + "/!state/" }

// Members returns the key prefix of the roster's records.
func (k Keys) Members() string { return string(k) + "/!state/member/" }

// Member returns the key of a session's roster entry.
func (k Keys) Member(s driver.SessionID) string { return string(k) + "/!state/member/" + string(s) }

// Shards returns the key prefix of the shards' records.
func (k Keys) Shards() string { return string(k) + "/!state/shard/" }

// Shard returns the key of a shard's record.
func (k Keys) Shard(s driver.ShardID) string { return string(k) + "/!state/shard/" + string(s) }

// Beats returns the key prefix of the records that heartbeats change.
func (k Keys) Beats() string { return string(k) + "/!beat/" }

// Beat returns the key of the record that a session's heartbeat changes.
func (k Keys) Beat(s driver.SessionID) string { return string(k) + "/!beat/" + string(s) }

// Heads returns the key prefix of the shards' heads.
func (k Keys) Heads() string { return string(k) + "/!head/" }

// Head returns the key of a shard's head.
func (k Keys) Head(s driver.ShardID) string { return string(k) + "/!head/" + string(s) }

// Logs returns the key prefix of all logs.
func (k Keys) Logs() string { return string(k) + "/!log/" }

// Log returns the key prefix of a shard's log.
func (k Keys) Log(s driver.ShardID) string { return string(k) + "/!log/" + string(s) + "/" }

// Chunk returns the key of one commit's entries, given the number of the last entry.
func (k Keys) Chunk(s driver.ShardID, last driver.Seq) string {
	return fmt.Sprintf("%s/!log/%s/%0*x", k, s, seqDigits, int64(last))
}

// ChangeLogs returns the key prefix of package changelog's records.
func (k Keys) ChangeLogs() string { return string(k) + "/!feed/" }

// Items returns the key prefix of a shard's items.
func (k Keys) Items(s driver.ShardID) string { return string(k) + "/!item/" + string(s) + "/" }

// Item returns the key of an item.
func (k Keys) Item(s driver.ShardID, key string) string {
	return string(k) + "/!item/" + string(s) + "/" + key
}

// Probe returns a scratch key for opening a namespace.
func (k Keys) Probe(random string) string { return string(k) + "/!probe/" + random }

// seqDigits is the fixed number of digits in chunk keys, which makes the keys sort by number.
const seqDigits = 16

// SplitChunk returns the shard and the number of the last entry from a chunk's key, and reports
// whether the key names a chunk.
func (k Keys) SplitChunk(key string) (driver.ShardID, driver.Seq, bool) {
	rest, ok := strings.CutPrefix(key, k.Logs())
	if !ok {
		return "", 0, false
	}
	shard, digits, ok := strings.Cut(rest, "/")
	if !ok || len(digits) != seqDigits || driver.CheckShard(driver.ShardID(shard)) != nil {
		return "", 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 63)
	if err != nil || n == 0 {
		return "", 0, false
	}
	return driver.ShardID(shard), driver.Seq(n), true
}
