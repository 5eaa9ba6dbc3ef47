// Package boundjson decodes untrusted JSON in limited memory. Limiting the number of bytes is not
// enough, because an empty object of three bytes may become a struct of hundreds.
package boundjson

import (
	"encoding/json"
	"fmt"
)

// maxDepth limits how deeply values are nested. No valid record reaches more than a third of this
// depth.
const maxDepth = 32

// Limits of every call. A call takes time proportional to the size and the number of values, which
// stays well below a second. A caller that decodes many records checks its context between calls.
const (
	mostBytes  = 24 << 20
	mostValues = 1_200_000
)

// Unmarshal is json.Unmarshal, except that it refuses more than size bytes, at most 24 MiB, and
// more than values values, at most 1,200,000. It counts opening brackets and commas, and there are
// at least half as many of these as values.
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

// Count counts the values that begin in the next part.
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
