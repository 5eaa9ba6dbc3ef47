// Package kvkeys makes the keys of the records of package kv.
package kvkeys

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// EndedSlots is the largest number of evictions remembered. A later eviction replaces the one
// in its slot.
const EndedSlots = 16

// Keys makes the keys of one namespace. Fixed parts start with "!", which no name may, so that
// namespaces "a" and "a/b" never overlap. Names end with "/" or with the key, so that shard "1"
// never matches "10".
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

// Incarnation returns the key of the record of the store's incarnation.
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

// Nodes returns the prefix of the node labels' records.
func (k Keys) Nodes() string { return string(k) + "/!node/" }

// Removed returns the key of the record that every removal of a node label changes.
func (k Keys) Removed() string { return string(k) + "/!node/!removed" }

// State returns the prefix of the roster and of the shards' records.
func (k Keys) State() string { return string(k) + "/!state/" }

// Members returns the prefix of the roster.
func (k Keys) Members() string { return string(k) + "/!state/member/" }

// Member returns the key of a session's roster entry.
func (k Keys) Member(s driver.SessionID) string { return string(k) + "/!state/member/" + string(s) }

// Shards returns the prefix of the shards' records.
func (k Keys) Shards() string { return string(k) + "/!state/shard/" }

// Shard returns the key of a shard's record.
func (k Keys) Shard(s driver.ShardID) string { return string(k) + "/!state/shard/" + string(s) }

// Beats returns the prefix of the records that heartbeats change.
func (k Keys) Beats() string { return string(k) + "/!beat/" }

// Beat returns the key of the record that a session's heartbeat changes.
func (k Keys) Beat(s driver.SessionID) string { return string(k) + "/!beat/" + string(s) }

// Heads returns the prefix of the shards' heads.
func (k Keys) Heads() string { return string(k) + "/!head/" }

// Head returns the key of a shard's head.
func (k Keys) Head(s driver.ShardID) string { return string(k) + "/!head/" + string(s) }

// Logs returns the prefix of all logs.
func (k Keys) Logs() string { return string(k) + "/!log/" }

// Log returns the prefix of a shard's log.
func (k Keys) Log(s driver.ShardID) string { return string(k) + "/!log/" + string(s) + "/" }

// Chunk returns the key of the entries of one commit, by the number of the last one.
func (k Keys) Chunk(s driver.ShardID, last driver.Seq) string {
	return fmt.Sprintf("%s/!log/%s/%0*x", k, s, seqDigits, int64(last))
}

// ChangeLogs returns the prefix of the records of package changelog.
func (k Keys) ChangeLogs() string { return string(k) + "/!feed/" }

// Items returns the prefix of a shard's items.
func (k Keys) Items(s driver.ShardID) string { return string(k) + "/!item/" + string(s) + "/" }

// Item returns the key of an item.
func (k Keys) Item(s driver.ShardID, key string) string {
	return string(k) + "/!item/" + string(s) + "/" + key
}

// Probe returns a scratch key for use when a namespace is opened.
func (k Keys) Probe(random string) string { return string(k) + "/!probe/" + random }

// seqDigits makes the order of chunk keys the order of their numbers.
const seqDigits = 16

// SplitChunk returns the shard and the last entry's number of a chunk's key, and reports
// whether the key is one.
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
