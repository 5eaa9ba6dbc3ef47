package main

import (
	"slices"
	"testing"
)

func TestOwnerOf(t *testing.T) {
	t.Parallel()
	f, err := openTimetable("")
	if err != nil {
		t.Fatal(err)
	}
	three, two := []string{"member-1", "member-2", "member-3"}, []string{"member-3", "member-1"}
	owned := map[string]int{}
	for _, a := range f.airports {
		before, after := ownerOf(a, three), ownerOf(a, two)
		owned[before]++
		if before != "member-2" && after != before {
			t.Errorf("%s goes from %s to %s although member-2 left", a, before, after)
		}
		if !slices.Contains(two, after) {
			t.Errorf("%s goes to %s, which is not a member", a, after)
		}
	}
	for _, m := range three {
		if n := owned[m]; n < 50 || n > 100 {
			t.Errorf("%s owns %d of 220 airports", m, n)
		}
	}
}
