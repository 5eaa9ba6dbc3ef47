package boundjson

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// counted counts how many of its values are decoded.
type counted struct{ pieces int }

func (c *counted) UnmarshalJSON([]byte) error { c.pieces++; return nil }

// TestMost: no call decodes more values or bytes than the limits of every call, even if the caller
// allows more.
func TestMost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    int
		want bool
	}{{mostValues, true}, {mostValues + 1, false}} {
		var all []*counted
		err := Unmarshal([]byte("["+strings.Repeat("0,", c.n-1)+"0]"), math.MaxInt, math.MaxInt, &all)
		n := 0
		for _, v := range all {
			n += v.pieces
		}
		if (err == nil) != c.want || c.want && n != c.n || !c.want && n != 0 {
			t.Errorf("a list of %d values: %d were decoded, %v", c.n, n, err)
		}
	}
	long := append(append([]byte{'"'}, bytes.Repeat([]byte("x"), mostBytes-2)...), '"')
	var text string
	if err := Unmarshal(long, math.MaxInt, math.MaxInt, &text); err != nil || len(text) != mostBytes-2 {
		t.Errorf("%d bytes: %v", len(long), err)
	}
	text = ""
	if err := Unmarshal(append(long, ' '), math.MaxInt, math.MaxInt, &text); err == nil || text != "" {
		t.Errorf("%d bytes: %d were decoded, %v", len(long)+1, len(text), err)
	}
}
