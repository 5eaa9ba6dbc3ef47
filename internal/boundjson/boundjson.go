// Package boundjson decodes JSON that others wrote, in bounded memory. An empty object of three
// bytes may become a struct of hundreds, so a bound of the bytes alone is none of the memory.
package boundjson

import (
	"encoding/json"
	"fmt"
)

// maxDepth bounds the nesting. No record has more than a third of it.
const maxDepth = 32

// No call decodes more, whatever it asks for. The time of a call is linear in both, and well below a second, so a
// caller that decodes many records looks at its context between them.
const (
	mostBytes  = 24 << 20
	mostValues = 1_200_000
)

// Unmarshal is json.Unmarshal, but refuses more than size bytes, at most 24 MiB, and more than values values, at most
// 1,200,000. It counts opening brackets and commas, which are at least half as many as the values.
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

// Count counts the values that the next part begins.
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
