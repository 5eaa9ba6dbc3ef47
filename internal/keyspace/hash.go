package keyspace

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// These constants name the hashes of a sharding.Keyspace. The hashes never change, and tests
// compare them with golden values.
const (
	// HashMixed is the default: 64-bit FNV-1a over the key's bytes, followed by the finalizer of
	// SplitMix64. FNV-1a alone mixes the last bytes poorly.
	HashMixed = "fnv1a-mixed"
	// HashFNV is plain 64-bit FNV-1a, read as a big-endian number. The shardSelector of Kubernetes
	// uses the same hash (KEP-5866). Keys that differ only in their last bytes have similar hashes.
	HashFNV = "fnv1a"
)

// MaxCuts is the maximum number of hashes at which one split can divide a range.
const MaxCuts = 15

// FormatHash writes a hash in the form 0x8000000000000000.
func FormatHash(h uint64) string { return fmt.Sprintf("0x%016x", h) }

// ParseHash reads a hash of the form 0x8000000000000000. The error matches driver.ErrInvalid.
func ParseHash(s string) (uint64, error) {
	digits, ok := strings.CutPrefix(s, "0x")
	h, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil || len(digits) > 16 {
		return 0, fmt.Errorf("tenure: %w: %.40q is no hash: write it as 0x8000000000000000", driver.ErrInvalid, s)
	}
	return h, nil
}

// Bounds returns the first hash of a range and the first hash after it, in the form of FormatHash.
// If to is 0, it represents 2^64.
func Bounds(from, to uint64) (first, after string) {
	if first, after = FormatHash(from), FormatHash(to); to == 0 {
		after = "0x10000000000000000"
	}
	return first, after
}

// FNV returns the 64-bit FNV-1a hash of s.
func FNV(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// Rank computes a node's rank for a shard from both hashes (rendezvous hashing, by Thaler and
// Ravishankar). The node with the highest rank comes first. The members of package core claim a
// free shard in this order. Therefore, the first plan leaves the shards with the members that
// already claimed them. If node is 0, the rank is the SplitMix64 finalizer of shard.
func Rank(shard, node uint64) uint64 {
	z := shard ^ node
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// LookUp returns the shard's own entry or, if the shard has no entry, the entry of the longest
// prefix that ends in "*".
func LookUp[T any](of map[string]T, shard string) (v T, ok bool) {
	if v, ok = of[shard]; ok {
		return v, true
	}
	longest := -1
	for p, x := range of {
		if q, isPrefix := strings.CutSuffix(p, "*"); isPrefix && strings.HasPrefix(shard, q) && len(q) > longest {
			longest, v, ok = len(q), x, true
		}
	}
	return v, ok
}
