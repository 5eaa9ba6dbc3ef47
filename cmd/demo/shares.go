package main

import (
	"fmt"
	"slices"
	"strings"
)

// A reshare is a change in the set of participating members, with the number of airports that
// changed owner.
type reshare struct {
	What  string `json:"what"`
	Moved int    `json:"moved"`
	Least int    `json:"least"` // number of airports that must move until shares differ by at most one
}

// leastMoves returns the smallest number of shards that need a new or first owner before the
// members' shares differ by at most one.
func leastMoves(have []int, shards int) int {
	have = slices.Sorted(slices.Values(have))
	slices.Reverse(have) // the members with the most airports keep the larger shares
	kept := 0
	for i, n := range have {
		share := shards / len(have)
		if i < shards%len(have) {
			share++
		}
		kept += min(n, share)
	}
	return shards - kept
}

// The result describes an airport that no participating member serves, or an imbalance in the
// shares. If everything is settled, unsettled returns "".
func (h *history) unsettled(airports, members []string) string {
	if len(members) == 0 {
		return "nobody takes part"
	}
	owns := make(map[string]int, len(members))
	for _, m := range members {
		owns[m] = 0
	}
	for _, a := range airports {
		l := h.newest(a)
		_, takesPart := owns[l.member]
		switch {
		case l.token == 0 || l.ended != 0:
			return a + " has no owner"
		case !takesPart:
			return fmt.Sprintf("%s is owned by %s, which is to own nothing", a, l.member)
		case l.resumed == 0:
			return fmt.Sprintf("%s was granted to %s, which has not resumed its work", a, l.member)
		}
		owns[l.member]++
	}
	most, least := members[0], members[0]
	for _, m := range members {
		if owns[m] > owns[most] {
			most = m
		}
		if owns[m] < owns[least] {
			least = m
		}
	}
	if owns[most] > owns[least]+1 {
		return fmt.Sprintf("%s owns %d airports, and %s %d", most, owns[most], least, owns[least])
	}
	return ""
}

// The text lists the number of a plan's moves for each reason.
func reasons(by map[string]int) string {
	var out []string
	for why, n := range by {
		out = append(out, fmt.Sprintf("%d because %s", n, why))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
