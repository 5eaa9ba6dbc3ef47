package kv

import (
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// cursor returns an opaque position of this Backend's counters. Another Backend, of another
// process or store, recognizes it by the instance, refuses it and answers in full.
func (b *Backend) cursor(seq int64) driver.Cursor {
	return driver.Cursor(b.instance + "." + strconv.FormatInt(seq, 36))
}

// position reads a cursor of this Backend; ok is false for anything else.
func (b *Backend) position(c driver.Cursor) (seq int64, ok bool) {
	digits, ok := strings.CutPrefix(string(c), b.instance+".")
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseInt(digits, 36, 64)
	return seq, err == nil && seq >= 0
}
