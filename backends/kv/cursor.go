package kv

import (
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// cursor encodes a change number as an opaque cursor. Any other Backend has a different instance,
// and answers the cursor with the full state.
func (b *Backend) cursor(seq int64) driver.Cursor {
	return driver.Cursor(b.instance + "." + strconv.FormatInt(seq, 36))
}

// position decodes a cursor, and reports whether the cursor belongs to this Backend.
func (b *Backend) position(c driver.Cursor) (seq int64, ok bool) {
	digits, ok := strings.CutPrefix(string(c), b.instance+".")
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseInt(digits, 36, 64)
	return seq, err == nil && seq >= 0
}
