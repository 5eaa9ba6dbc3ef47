package main

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// TestPassages applies one story, in any order in which pipes may deliver its events.
func TestPassages(t *testing.T) {
	t.Parallel()
	type reported struct {
		by string
		e  event
	}
	story := []reported{
		{"m1", event{Is: isGranted, At: 100, Airport: "ATL", Token: 3}},
		{"m1", event{Is: isResumed, At: 110, Airport: "ATL", Token: 3}},
		{"m1", event{Is: isWrote, At: 120, Airport: "ATL", Token: 3, Count: 4}},
		// m1 was stopped at 200. Its airport was taken over, and m1 reports the end of its lease
		// later.
		{"m2", event{Is: isGranted, At: 290, Airport: "ATL", Token: 7}},
		{"m2", event{Is: isResumed, At: 300, Airport: "ATL", Token: 7, Count: 5}},
		{"m1", event{Is: isEnded, At: 400, Airport: "ATL", Token: 3}},
		{"m2", event{Is: isEnded, At: 500, Airport: "ATL", Token: 7, Planned: true}},
		{"m1", event{Is: isGranted, At: 503, Airport: "ATL", Token: 8}},
		{"m1", event{Is: isResumed, At: 505, Airport: "ATL", Token: 8, Count: 5}},
		{"m1", event{Is: isAnswered, Writes: []write{{Airport: "ATL", Token: 3, Outcome: wasRefused}}}},
		// The same member lost and regained the airport, so this is not a passage.
		{"m3", event{Is: isGranted, At: 100, Airport: "BOS", Token: 1}},
		{"m3", event{Is: isEnded, At: 150, Airport: "BOS", Token: 1}},
		{"m3", event{Is: isGranted, At: 160, Airport: "BOS", Token: 2}},
		{"m3", event{Is: isResumed, At: 165, Airport: "BOS", Token: 2, Count: 1}},
	}
	for seed := range uint64(50) {
		h := newHistory()
		h.addFault("m1", sigStop, 200)
		for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(len(story)) {
			h.apply(story[i].by, story[i].e)
		}
		var got []string
		var took []time.Duration
		for _, p := range h.passages() {
			got = append(got, p.airport+" "+p.from.member+" "+p.to.member+" "+p.signal)
			took = append(took, p.took)
		}
		if want := []string{"ATL m1 m2 SIGSTOP", "ATL m2 m1 "}; !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: got %q, want %q", seed, got, want)
		}
		if want := []time.Duration{100, 5}; !reflect.DeepEqual(took, want) {
			t.Fatalf("seed %d: took %d, want %d", seed, took, want)
		}
		if h.decided != 6 || h.granted != 5 || len(h.zombies) != 1 {
			t.Fatalf("seed %d: %d decided, %d granted, %d zombie writes, want 6, 5, 1", seed, h.decided, h.granted,
				len(h.zombies))
		}
		if got := h.owned("m1"); !reflect.DeepEqual(got, []string{"ATL"}) {
			t.Fatalf("seed %d: m1 owns %v, want ATL", seed, got)
		}
	}
}
