package keyspace

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// The hashes of a sharding.Keyspace. Both are permanent, and tests compare golden values.
const (
	// HashMixed is the default: FNV-1a of 64 bits over the key's bytes, finished like SplitMix64,
	// because FNV-1a alone mixes the last bytes poorly.
	HashMixed = "fnv1a-mixed"
	// HashFNV is plain FNV-1a of 64 bits, read as a big-endian number, like the shardSelector of
	// Kubernetes (KEP-5866). Keys that differ only in their last bytes have hashes close together.
	HashFNV = "fnv1a"
)

// MaxCuts is the largest number of hashes at which one split divides a range.
const MaxCuts = 15

// FormatHash writes a hash in the form 0x8000000000000000.
func FormatHash(h uint64) string { return fmt.Sprintf("0x%016x", h) }

// ParseHash reads a hash of the form 0x8000000000000000. Its error matches driver.ErrInvalid.
func ParseHash(s string) (uint64, error) {
	digits, ok := strings.CutPrefix(s, "0x")
	h, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil || len(digits) > 16 {
		return 0, fmt.Errorf("tenure: %w: %.40q is no hash: write it as 0x8000000000000000", driver.ErrInvalid, s)
	}
	return h, nil
}

// Bounds returns the first hash of a range, and the first after it, in the form of FormatHash. A to
// of 0 stands for 2^64.
func Bounds(from, to uint64) (first, after string) {
	if first, after = FormatHash(from), FormatHash(to); to == 0 {
		after = "0x10000000000000000"
	}
	return first, after
}
