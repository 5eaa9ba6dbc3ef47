package kvwire

import (
	"crypto/rand"
	"strings"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

// Damage is the key of the record that a tampering is for, and the bytes to write there,
// other ones each time; ok is false for a kind that writes no other bytes. most is about
// how many bytes the store takes.
func Damage(namespace string, what conformance.Tampering, name string, most int) (key, value string, ok bool) {
	keys, shard := kvkeys.Keys(namespace), driver.ShardID(name)
	switch what {
	case conformance.CorruptShard:
		return keys.Shard(shard), "\xff\x00 held" + rand.Text(), true
	case conformance.OversizeShard:
		return keys.Shard(shard), "1 held " + strings.Repeat("x", most), true
	case conformance.ImpossibleShard:
		return keys.Shard(shard), "1 free 9223372036854775807 " + rand.Text(), true
	case conformance.CorruptHead:
		return keys.Head(shard), "1 2 \x1b 4" + rand.Text(), true
	case conformance.CorruptEntry:
		return keys.Chunk(shard, 1), "\x00{{{" + rand.Text(), true
	case conformance.CorruptMember:
		return keys.Member(driver.SessionID(name)), `{"v":1,` + rand.Text(), true
	case conformance.CorruptBeat:
		return keys.Beat(driver.SessionID(name)), "\xff" + rand.Text(), true
	}
	return keys.Shard(shard), "", false
}
