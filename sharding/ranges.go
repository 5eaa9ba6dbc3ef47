package sharding

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core"
)

// Range is a half-open interval of hashes: from From on, and below To. A To of 0 stands for
// 2^64, so the zero value is the whole keyspace. It is empty if From is not below To.
type Range struct {
	From, To uint64
}

// empty is the range of a shard that answers for no keys.
var empty = Range{1, 1}

// Has reports whether a hash lies in the range.
func (r Range) Has(hash uint64) bool { return hash >= r.From && (r.To == 0 || hash < r.To) }

// Empty reports whether no hash lies in the range.
func (r Range) Empty() bool { return r.To != 0 && r.From >= r.To }

// String returns the two bounds as Kubernetes' shardRange takes them (KEP-5866):
// '0x8000000000000000', '0x10000000000000000'.
func (r Range) String() string {
	from, to := r.Bounds()
	return "'" + from + "', '" + to + "'"
}

// Bounds are the first hash of the range, and the first after it, in the form 0x8000000000000000.
func (r Range) Bounds() (from, to string) {
	if from, to = hex(r.From), hex(r.To); r.To == 0 {
		to = "0x10000000000000000"
	}
	return from, to
}

func hex(h uint64) string { return fmt.Sprintf("0x%016x", h) }

// MarshalJSON writes the two bounds.
func (r Range) MarshalJSON() ([]byte, error) {
	from, to := r.Bounds()
	return []byte(`["` + from + `","` + to + `"]`), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Range) UnmarshalJSON(b []byte) error {
	bounds := strings.Split(strings.Trim(string(b), "[]"), ",")
	if len(bounds) != 2 {
		return errors.New("a range is two bounds, as in [\"0x0000000000000000\",\"0x8000000000000000\"]")
	}
	var err error
	for i, to := range []*uint64{&r.From, &r.To} {
		s := strings.Trim(strings.TrimSpace(bounds[i]), `"`)
		if s == "0x10000000000000000" && i == 1 {
			*to = 0
			continue
		}
		if *to, err = ParseHash(s); err != nil || i == 1 && *to == 0 {
			return fmt.Errorf("the bound %.40q of a range is no hash of the form 0x8000000000000000", s)
		}
	}
	return nil
}

// ParseHash reads a hash of the form 0x8000000000000000; the error matches core.ErrInvalid.
func ParseHash(s string) (uint64, error) {
	digits, ok := strings.CutPrefix(s, "0x")
	h, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil || len(digits) > 16 {
		return 0, fmt.Errorf("tenure: %w: %.40q is no hash: write it as 0x8000000000000000", core.ErrInvalid, s)
	}
	return h, nil
}
