package mutate

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Choice selects the mutants to try. Because mutants take minutes, the test tries none without the
// flag -mutants. With -mutants, it tries all. With -mutants=7,3, it tries the mutants at positions
// 7 and 3 of the list, in this order. No mutant begins after -mutants.until, a time in seconds
// since 1970. The flag -mutants.for limits how long after the build a mutant may begin, because the
// build may take most of the total time.
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

// IsBoolFlag lets users give the flag without numbers.
func (c *Choice) IsBoolFlag() bool { return true }

// String returns "true" if mutants were requested, and "false" otherwise.
func (c *Choice) String() string { return strconv.FormatBool(c.on) }

// Set accepts true, false, or numbers.
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

// On reports whether mutants were requested.
func (c *Choice) On() bool { return c.on }

// order returns the positions of the mutants to try, given the length of the list.
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
