package assign

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/internal/keyspace"
)

// Range is a half-open interval of hashes, from From up to but excluding To. A To of 0 represents
// 2^64, so the zero value is the whole keyspace. If From is not below To, the range is empty.
type Range struct {
	From, To uint64
}

// Has reports whether a hash lies in the range.
func (r Range) Has(hash uint64) bool { return hash >= r.From && (r.To == 0 || hash < r.To) }

// Empty reports whether no hash lies in the range.
func (r Range) Empty() bool { return r.To != 0 && r.From >= r.To }

// String returns the range's ends in the form of Kubernetes' shardRange (KEP-5866):
// '0x8000000000000000', '0x10000000000000000'.
func (r Range) String() string {
	from, to := keyspace.Bounds(r.From, r.To)
	return "'" + from + "', '" + to + "'"
}

// MarshalJSON encodes the range's two ends.
func (r Range) MarshalJSON() ([]byte, error) {
	from, to := keyspace.Bounds(r.From, r.To)
	return []byte(`["` + from + `","` + to + `"]`), nil
}

// UnmarshalJSON decodes what MarshalJSON encodes.
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
		if *to, err = keyspace.ParseHash(s); err != nil || i == 1 && *to == 0 {
			return fmt.Errorf("the bound %.40q of a range is no hash of the form 0x8000000000000000", s)
		}
	}
	return nil
}
