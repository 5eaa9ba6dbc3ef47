// Package boundjson decodes untrusted JSON in a limited amount of memory. A limit on the size of
// the input is not enough, because an empty object of three bytes may become a struct of hundreds
// of bytes.
package boundjson

import (
	"encoding/json"
	"fmt"
)

// maxDepth limits how deeply values are nested. Valid records have at most a third of this depth.
const maxDepth = 32

// These constants limit every call. The time that a call takes is proportional to the size and the
// number of values, and stays well below a second. A caller that decodes many records should check
// its context between calls.
const (
	mostBytes  = 24 << 20
	mostValues = 1_200_000
)

// Unmarshal is like json.Unmarshal, but refuses JSON with more than size bytes, or with a count of
// more than values. The maximum is 24 MiB for size, and 1,200,000 for values. The count is the
// number of opening brackets and commas, which is at least half the number of values.
func Unmarshal(data []byte, size, values int, into any) error {
	if size, values = min(size, mostBytes), min(values, mostValues); len(data) > size {
		return fmt.Errorf("it has %d bytes: the limit is %d", len(data), size)
	}
	var c Counter
	if c.Count(data); c.Values > values || c.Deepest > maxDepth {
		return fmt.Errorf("it has %d values, %d deep: the limits are %d and %d", c.Values, c.Deepest, values, maxDepth)
	}
	return json.Unmarshal(data, into)
}

// A Counter counts the opening brackets and commas in JSON that arrives in parts.
type Counter struct {
	Values, Deepest int

	depth           int
	quoted, escaped bool
}

// Count counts the opening brackets and commas in the next part.
func (c *Counter) Count(part []byte) {
	for _, b := range part {
		switch {
		case c.escaped:
			c.escaped = false
		case c.quoted:
			c.escaped, c.quoted = b == '\\', b != '"'
		case b == '"':
			c.quoted = true
		case b == '{', b == '[':
			c.depth++
			c.Values++
			c.Deepest = max(c.Deepest, c.depth)
		case b == '}', b == ']':
			c.depth--
		case b == ',':
			c.Values++
		}
	}
}
