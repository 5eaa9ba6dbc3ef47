package main

import (
	"strings"
	"testing"
)

func TestLeastMoves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		have   []int
		shards int
		want   int
	}{
		{"even", []int{5, 5, 5}, 15, 0},
		{"even but for one", []int{5, 6, 5}, 16, 0},
		{"one joins", []int{0, 73, 73, 74}, 220, 55},
		{"one joins, and the larger share stays", []int{4, 3, 0}, 7, 2},
		{"one is gone", []int{73, 73}, 220, 74},
		{"one has all", []int{0, 10}, 10, 5},
		{"nobody has anything", []int{0, 0}, 10, 10},
	} {
		if got := leastMoves(c.have, c.shards); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

func TestUnsettled(t *testing.T) {
	t.Parallel()
	airports := []string{"ATL", "BOS", "DEN"}
	h := newHistory()
	own := func(member, airport string, token int64) {
		h.apply(member, event{Is: isGranted, At: 1, Airport: airport, Token: token})
		h.apply(member, event{Is: isResumed, At: 2, Airport: airport, Token: token})
	}
	want := func(text string, members ...string) {
		t.Helper()
		got := h.unsettled(airports, members)
		if text == "" && got != "" || !strings.Contains(got, text) {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	own("m1", "ATL", 1)
	own("m1", "BOS", 1)
	want("DEN has no owner", "m1", "m2")
	own("m1", "DEN", 1)
	want("m1 owns 3 airports, and m2 0", "m1", "m2")
	want("", "m1")
	h.apply("m1", event{Is: isEnded, At: 3, Airport: "DEN", Token: 1, Planned: true})
	want("DEN has no owner", "m1", "m2")
	h.apply("m2", event{Is: isGranted, At: 4, Airport: "DEN", Token: 2})
	want("m2, which has not resumed", "m1", "m2")
	own("m2", "DEN", 2)
	want("", "m1", "m2")
	want("owned by m2, which is to own nothing", "m1")
	want("ATL is owned by m1", "m2")
	own("m2", "ATL", 2)
	own("m2", "BOS", 2)
	want("", "m2")
	want("nobody", []string(nil)...)
}
