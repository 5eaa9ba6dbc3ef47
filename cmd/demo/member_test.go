//go:build unix

package main

import (
	"reflect"
	"testing"

	"github.com/tenure-go/tenure/core"
)

func TestSharingPlan(t *testing.T) {
	t.Parallel()
	airports := []string{"ATL", "BOS", "DEN", "DFW", "JFK", "LAX", "ORD", "SFO"}
	var mine, theirs []string
	for _, a := range airports {
		if ownerOf(a, []string{"m1", "m2"}) == "m1" {
			mine = append(mine, a)
		} else {
			theirs = append(theirs, a)
		}
	}
	if len(mine) == 0 || len(theirs) == 0 {
		t.Fatalf("the example shares nothing: %v and %v", mine, theirs)
	}
	m1, m2 := core.Member{Node: "m1", Session: "s1"}, core.Member{Node: "m2", Session: "s2"}
	s := &sharing{node: "m1", airports: airports, mine: map[string]bool{}, moving: map[string]bool{}}
	want := func(what string, members []core.Member, peers []string, take []string, give map[core.SessionID][]string) {
		t.Helper()
		gotTake, gotGive := s.plan(members, peers)
		if !reflect.DeepEqual(gotTake, take) {
			t.Errorf("%s: takes %v, want %v", what, gotTake, take)
		}
		if (len(gotGive) > 0 || len(give) > 0) && !reflect.DeepEqual(gotGive, give) {
			t.Errorf("%s: gives %v, want %v", what, gotGive, give)
		}
	}
	want("alone", nil, nil, airports, nil)
	want("a peer that starts at the same time", nil, []string{"m2"}, mine, nil)
	want("both joined", []core.Member{m1, m2}, nil, mine, nil)
	s.took(airports)
	want("alone with everything", []core.Member{m1}, nil, nil, nil)
	want("a peer that has not joined", []core.Member{m1}, []string{"m2"}, nil, nil)
	want("a member joins", []core.Member{m1, m2}, nil, nil, map[core.SessionID][]string{"s2": theirs})
	want("two sessions of one name", []core.Member{m1, m2, {Node: "m2", Session: "s3"}}, nil, nil, nil)
	s.giving(theirs)
	want("while they move", []core.Member{m1, m2}, nil, nil, nil)
	s.gave(theirs)
	want("moved", []core.Member{m1, m2}, nil, nil, nil)
	want("the other is gone", []core.Member{m1}, nil, theirs, nil)
}
