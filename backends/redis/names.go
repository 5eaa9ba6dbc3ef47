package redis

import (
	"strings"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

// names provides the names of a namespace's keys on the server. Every key begins with the namespace
// in braces, which puts all keys in one slot of a cluster.
//
//	{<ns>}/records   hash: a record under its key of package kvkeys without the namespace,
//	                 as revision, space, value; rev, the revision of the last write;
//	                 state, logs and beats, the last revision in each feed; history
//	{<ns>}/names     sorted set: the names of the records, for their order
//	{<ns>}/state     stream: the changes of the roster and of the shards' records
//	{<ns>}/logs      stream: the changes of the logs
//	{<ns>}/beats     stream: all heartbeats
//	{<ns>}/beat/<s>  stream: the last heartbeat of session s
//	{<ns>}/free      key on which the rights are tried
type names struct {
	keys kvkeys.Keys
	root string // prefix of the records, with the slash
}

func newNames(namespace string) (names, error) {
	keys, err := kvkeys.New(namespace)
	return names{keys: keys, root: namespace + "/"}, err
}

func (n names) key(part string) string { return "{" + string(n.keys) + "}/" + part }

// fixed returns the keys passed to every script, in order.
func (n names) fixed() []string {
	return []string{n.key("records"), n.key("names"), n.key("state"), n.key("logs"), n.key("beats")}
}

func (n names) record(key string) string { return strings.TrimPrefix(key, n.root) }

// These constants number the feeds in the scripts.
const (
	noFeed = iota
	stateFeed
	logsFeed
	beatsFeed
)

// feedNames occur in keys, and in the fields with the feeds' last revisions.
var feedNames = [...]string{stateFeed: "state", logsFeed: "logs", beatsFeed: "beats"}

// feed returns the number of the feed with a record's changes and, for a heartbeat, the session.
func (n names) feed(key string) (int, driver.SessionID) {
	switch {
	case strings.HasPrefix(key, n.keys.State()):
		return stateFeed, ""
	case strings.HasPrefix(key, n.keys.Logs()):
		return logsFeed, ""
	case strings.HasPrefix(key, n.keys.Beats()):
		return beatsFeed, driver.SessionID(strings.TrimPrefix(key, n.keys.Beats()))
	}
	return noFeed, ""
}

// own returns the key of a session's heartbeat stream.
func (n names) own(s driver.SessionID) string { return n.key("beat/" + string(s)) }
