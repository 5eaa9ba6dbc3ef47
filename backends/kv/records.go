package kv

import (
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvrecord"
)

// corrupt returns the error for an unreadable record (D1).
func corrupt(key, why string) *driver.DamagedError { return driver.Damaged(key, shardOf(key), why) }

// shardOf returns the shard to which a key belongs, or "" if the key belongs to no shard.
func shardOf(key string) driver.ShardID {
	_, rest, _ := strings.Cut(key, "/!")
	for _, prefix := range [...]string{"state/shard/", "head/", "log/", "item/"} {
		if name, ok := strings.CutPrefix(rest, prefix); ok {
			name, _, _ = strings.Cut(name, "/")
			return driver.ShardID(name)
		}
	}
	return ""
}

type shardRecord = kvrecord.Shard

// decodeShard decodes a shard's record. A token above the base plus the record's revision was never
// granted, and is therefore an error. A lock's previous token may be higher, because the claimer
// supplied it (R2).
func decodeShard(p Pair, base driver.Token) (shardRecord, error) {
	r, err := parseShard(p)
	if top := base + driver.Token(p.Rev); err == nil && (r.Token > top || r.From >= top && !driver.IsLock(shardOf(p.Key))) {
		return shardRecord{}, corrupt(p.Key, "its token is above any that was granted")
	}
	return r, err
}

func parseShard(p Pair) (shardRecord, error) {
	r, reason := kvrecord.ParseShard(p.Value)
	if reason != "" {
		return shardRecord{}, corrupt(p.Key, reason)
	}
	return r, nil
}

func encodeHead(h driver.Head) []byte {
	b := make([]byte, 0, 64)
	b = append(b, kvrecord.Format...)
	for _, n := range [...]int64{int64(h.Number), int64(h.Seq), int64(h.Oldest), int64(h.Token)} {
		b = append(b, ' ')
		b = strconv.AppendInt(b, n, 10)
	}
	b = append(b, ' ')
	return strconv.AppendUint(b, uint64(h.Nonce), 16)
}

// decodeHead returns the zero Head if there is no record.
func decodeHead(p Pair) (driver.Head, error) {
	if p.Rev == 0 {
		return driver.Head{}, nil
	}
	l := kvrecord.Line{Rest: p.Value}
	l.Format(kvrecord.MaxLen)
	h := driver.Head{
		Number: driver.WriteNo(l.Number()),
		Seq:    driver.Seq(l.Number()),
		Oldest: driver.Seq(l.Number()),
		Token:  driver.Token(l.Number()),
		Nonce:  driver.Nonce(l.Hex()),
	}
	if why := driver.CheckHead(h); why != "" || h.Number == 0 {
		l.Fail("its counts do not fit together")
	}
	if l.Reason != "" {
		return driver.Head{}, corrupt(p.Key, l.Reason)
	}
	return h, nil
}

// Each heartbeat has a different record, because a store may ignore a write of the same bytes.
func encodeBeat(n uint64) []byte {
	return strconv.AppendUint([]byte(kvrecord.Format+" "), n, 10)
}
