package mutate

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Choice selects the mutants that are tried. Without the flag, no mutant is tried, because mutants
// take minutes. With -mutants, all are tried. With -mutants=7,3, the mutants at places 7 and 3 of
// the list are tried, in this order. No mutant begins after -mutants.until, in seconds since 1970.
// The flag -mutants.for limits the time in which mutants may begin. It counts from the end of the
// build, which may take most of the time.
type Choice struct {
	on    bool
	some  []int // nil: all
	until time.Time
	span  time.Duration // 0: no limit
}

// Flag defines the flags of the test binary.
func Flag() *Choice {
	c := new(Choice)
	flag.Var(c, "mutants", "try mutants, which takes minutes: all, or those with these `numbers`")
	flag.Func("mutants.until", "the time after which no mutant is begun, in `seconds` since 1970", func(s string) error {
		sec, err := strconv.ParseInt(s, 10, 64)
		c.until = time.Unix(sec, 0)
		return err
	})
	flag.DurationVar(&c.span, "mutants.for", 0, "how `long` mutants are begun once the binary is built; 0: as long as it takes")
	return c
}

// IsBoolFlag allows the flag without numbers.
func (c *Choice) IsBoolFlag() bool { return true }

// String returns "true" if mutants were asked for, and otherwise "false".
func (c *Choice) String() string { return strconv.FormatBool(c.on) }

// Set takes true, false, or numbers.
func (c *Choice) Set(s string) error {
	c.on, c.some = s != "false", nil
	if s == "true" || s == "false" {
		return nil
	}
	for text := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		c.some = append(c.some, n)
	}
	return nil
}

// On reports whether mutants were asked for.
func (c *Choice) On() bool { return c.on }

// order returns the places of the mutants that are tried, for a list of this length.
func (c *Choice) order(of int) ([]int, error) {
	if c.some == nil {
		all := make([]int, of)
		for n := range all {
			all[n] = n
		}
		return all, nil
	}
	for _, n := range c.some {
		if n < 0 || n >= of {
			return nil, fmt.Errorf("there is no mutant %d of %d", n, of)
		}
	}
	return c.some, nil
}
