// Package listing limits the bytes of one call of driver.Backend.List, and the damaged records of a
// View.
package listing

import (
	"fmt"
	"math"

	"github.com/tenure-go/tenure/core/driver"
)

// MaxDamaged is the largest number of damaged records that one View names.
const MaxDamaged = 64

// page is the approximate number of bytes of values that one read may return.
const page = 4 << 20

// A Budget decides which values of a List are returned.
type Budget struct {
	largest int
	room    int
}

// New returns the budget of a call with these arguments.
func New(limit, largest int) *Budget {
	b := &Budget{largest: largest, room: math.MaxInt}
	if limit > 0 && largest > 0 {
		b.room = driver.MaxListBytes
	}
	return b
}

// Page returns how many of limit items may be read together.
func (b *Budget) Page(limit int) int {
	if b.room == math.MaxInt {
		return limit
	}
	return min(limit, max(1, page/b.largest))
}

// Spent reports whether the call returns no further values.
func (b *Budget) Spent() bool { return b.room <= 0 }

// Take keeps the item's value, which has size bytes, or marks the item as damaged. name is the
// item's name in the store's own tools.
func (b *Budget) Take(it *driver.Item, size int, shard driver.ShardID, name string) {
	switch {
	case b.largest > 0 && size > b.largest:
		it.Value = nil
		it.Damaged = driver.Damaged(name, shard, fmt.Sprintf("its value has %d bytes, and such a record at most %d", size, b.largest))
	case b.Spent() || size > b.room:
		it.Value, b.room = nil, 0
		it.Damaged = driver.Damaged(name, shard, fmt.Sprintf("it and the items before it have more than %d bytes", driver.MaxListBytes))
	case b.room < math.MaxInt:
		b.room -= size
	}
}
