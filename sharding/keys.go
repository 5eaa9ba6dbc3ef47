package sharding

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core"
)

// hash maps keys to shards, and is permanent: FNV-1a of 64 bits over the key's bytes,
// finished as SplitMix64 does, because the last bytes of FNV-1a alone mix poorly.
func hash(key string) uint64 { return rendezvous(fnv1a(key), 0) }

// Keyspace divides keys among shards. It is a value; all processes that use the
// keys have the same, but for the moment in which it is changed.
type Keyspace struct {
	// Name begins the names of its shards: "orders" has orders-0000, orders-0001 ...
	Name string `json:"name" yaml:"name"`
	// Layouts is the list of the numbers of shards that the keys have been divided into, the
	// oldest first, the last in force. To change the number of shards append to it,
	// and never remove: a shard goes from layout to layout, one at a time. Each is
	// a multiple of the one before it, or divides it, and at most 199,999; there are at
	// most 255 of them.
	Layouts []int `json:"layouts" yaml:"layouts"`
	// Digits is how wide a shard's number is written. 0 means 4. It never changes.
	Digits int `json:"digits,omitempty" yaml:"digits,omitempty"`
}

// Validate says what is wrong with the keyspace; the error matches ErrInvalid.
func (k Keyspace) Validate() error {
	if len(k.Layouts) == 0 || len(k.Layouts) > 255 {
		return fmt.Errorf("tenure: %w: keyspace %q has %d layouts: give 1 to 255 numbers of shards", core.ErrInvalid, k.Name, len(k.Layouts))
	}
	for i, n := range k.Layouts {
		if n < 1 || n > MaxShards {
			return fmt.Errorf("tenure: %w: keyspace %q has a layout of %d shards: use 1 to %d, each for any number of keys", core.ErrInvalid, k.Name, n, MaxShards)
		}
		if i > 0 && n%k.Layouts[i-1] != 0 && k.Layouts[i-1]%n != 0 {
			return fmt.Errorf("tenure: %w: keyspace %q goes from %d to %d shards: one must be a multiple of the other", core.ErrInvalid, k.Name, k.Layouts[i-1], n)
		}
	}
	if k.Digits < 0 || k.Digits > 9 {
		return fmt.Errorf("tenure: %w: keyspace %q has numbers of %d digits: use 1 to 9, or 0 for 4", core.ErrInvalid, k.Name, k.Digits)
	}
	_, err := Expand(k.Specs()...)
	return err
}

// shards is the number of shards in force.
func (k Keyspace) shards() int { return k.Layouts[len(k.Layouts)-1] }

// Specs is the shard set to give to Options.Shards: every shard of the last two
// layouts, because both serve while one is left for the other.
func (k Keyspace) Specs() []string {
	n := k.shards()
	if len(k.Layouts) > 1 {
		n = max(n, k.Layouts[len(k.Layouts)-2])
	}
	return []string{fmt.Sprintf("%s-%0*d..%d", k.Name, k.digits(), 0, n-1)}
}

func (k Keyspace) digits() int {
	if k.Digits == 0 {
		return 4
	}
	return k.Digits
}

// Shard is the shard of a key in the layout in force.
func (k Keyspace) Shard(key string) string { return k.shard(int(hash(key) % uint64(k.shards()))) }

// Candidates are the shards that may answer for a key: that of the layout in force
// first, then that of the one before, which keeps the key until it was cut over.
// Mostly they are the same one.
func (k Keyspace) Candidates(key string) []string {
	h := hash(key)
	out := []string{k.Shard(key)}
	if n := len(k.Layouts); n > 1 {
		if former := k.shard(int(h % uint64(k.Layouts[n-2]))); former != out[0] {
			out = append(out, former)
		}
	}
	return out
}

func (k Keyspace) shard(i int) string { return fmt.Sprintf("%s-%0*d", k.Name, k.digits(), i) }

// index is the number of a shard of this keyspace.
func (k Keyspace) index(shard string) (int, error) {
	digits, ok := strings.CutPrefix(shard, k.Name+"-")
	i, err := strconv.Atoi(digits)
	if !ok || err != nil || i < 0 || k.shard(i) != shard {
		return 0, fmt.Errorf("tenure: %w: shard %q does not belong to keyspace %q", core.ErrInvalid, shard, k.Name)
	}
	return i, nil
}

// owns reports whether shard i has the key of hash h in a layout, counted from 1.
// In layout 0 nobody has any.
func (k Keyspace) owns(layout, i int, h uint64) bool {
	if layout < 1 {
		return false
	}
	n := k.Layouts[layout-1]
	return i < n && h%uint64(n) == uint64(i)
}

// givers are the shards, other than i itself, from which shard i gets keys when it
// goes to a layout from the one before.
func (k Keyspace) givers(layout, i int) []int {
	if layout < 2 {
		return nil
	}
	from, to := k.Layouts[layout-2], k.Layouts[layout-1]
	switch {
	case i >= to:
		return nil
	case to > from && i >= from: // split off
		return []int{i % from}
	case to < from: // joined to
		var out []int
		for j := i + to; j < from; j += to {
			out = append(out, j)
		}
		return out
	}
	return nil
}
