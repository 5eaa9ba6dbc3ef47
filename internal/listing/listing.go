// Package listing limits how many bytes one call of driver.Backend.List returns, and how many
// damaged records a View names.
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

// A Budget decides which values a List returns.
type Budget struct {
	largest int
	room    int
}

// New returns the budget for a call that lists at most limit items, with values of at most largest
// bytes.
func New(limit, largest int) *Budget {
	b := &Budget{largest: largest, room: math.MaxInt}
	if limit > 0 && largest > 0 {
		b.room = driver.MaxListBytes
	}
	return b
}

// Page returns the number of items that one read may request, out of limit items.
func (b *Budget) Page(limit int) int {
	if b.room == math.MaxInt {
		return limit
	}
	return min(limit, max(1, page/b.largest))
}

// Spent reports whether the budget is used up.
func (b *Budget) Spent() bool { return b.room <= 0 }

// Take keeps the item's value, which has size bytes, or marks the item as damaged. The argument
// name is the item's name in the store's tools.
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
