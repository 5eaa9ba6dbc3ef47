// Package boundjson decodes JSON from others in limited memory. A limit on the bytes alone does
// not limit the memory, because an empty object of three bytes may become a struct of hundreds.
package boundjson

import (
	"encoding/json"
	"fmt"
)

// maxDepth limits the nesting. No record has more than a third of it.
const maxDepth = 32

// Limits of every call. The time of a call is linear in both, and is well below a second. A
// caller that decodes many records checks its context between them.
const (
	mostBytes  = 24 << 20
	mostValues = 1_200_000
)

// Unmarshal is json.Unmarshal, except that it refuses more than size bytes, at most 24 MiB, and
// more than values values, at most 1,200,000. It counts opening brackets and commas, which are at
// least half as many as the values.
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

// A Counter counts the opening brackets and commas in JSON that comes in parts.
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
