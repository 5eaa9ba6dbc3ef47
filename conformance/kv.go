package conformance

import (
	"crypto/rand"
	"errors"
	"strings"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

// KVFaults simulates a faulty network in front of one store of package kv. Pass the result of wrap,
// instead of the store, to kv.Open. Return wire from [Store.OpenFaulty] to let the suite control
// the faults. Hold and DropReplies affect only writes and heartbeats. If Cut makes a call fail, the
// call may have been sent.
func KVFaults() (wrap func(kv.Store) kv.Store, wire *Wire) {
	l := new(kvfault.Link)
	const writes = kvfault.Write | kvfault.Heartbeat
	set := func(kinds kvfault.Kind, f kvfault.Fault) func() func() {
		return func() func() {
			l.Set(kinds, f)
			return l.Heal
		}
	}
	return l.Wrap, &Wire{
		DropRequests: set(kvfault.All, kvfault.DropRequest),
		DropReplies:  set(writes, kvfault.DropReply),
		Duplicate:    set(kvfault.All, kvfault.Duplicate),
		Hold: func() func() {
			l.Set(writes, kvfault.HoldRequest)
			return func() {
				l.Heal()
				l.Deliver()
			}
		},
		Cut: func() func() {
			l.SetError(kvfault.All, errors.New("connection refused"))
			return l.Heal
		},
	}
}

// KVDamage helps to implement [Store.Tamper] in a namespace of package kv. KVDamage returns the key
// of the record to damage, and the bytes to write under this key. The bytes differ on each call.
// Unless the kind of tampering replaces the record's bytes, ok is false. The most argument is the
// approximate number of bytes that the store accepts.
func KVDamage(namespace string, what Tampering, name string, most int) (key, value string, ok bool) {
	keys, shard := kvkeys.Keys(namespace), driver.ShardID(name)
	switch what {
	case CorruptShard:
		return keys.Shard(shard), "\xff\x00 held" + rand.Text(), true
	case OversizeShard:
		return keys.Shard(shard), "1 held " + strings.Repeat("x", most), true
	case ImpossibleShard:
		return keys.Shard(shard), "1 free 9223372036854775807 " + rand.Text(), true
	case CorruptHistory:
		return keys.Shard(shard), "1 free 1 @\x1b[31m" + rand.Text() + "/", true
	case CorruptHead:
		return keys.Head(shard), "1 2 \x1b 4" + rand.Text(), true
	case CorruptEntry:
		return keys.Chunk(shard, 1), "\x00{{{" + rand.Text(), true
	case RemoveEntry:
		return keys.Chunk(shard, 1), "", false
	case CorruptMember:
		return keys.Member(driver.SessionID(name)), `{"v":1,` + rand.Text(), true
	case OddItem:
		return keys.Item(shard, "k2#x"), "junk", true
	case CorruptBeat:
		return keys.Beat(driver.SessionID(name)), "\xff" + rand.Text(), true
	default:
		return keys.Shard(shard), "", false
	}
}
