package main

import (
	"reflect"
	"testing"
)

// flown returns three departures from one airport, delayed by 10, -5 and 30 minutes.
func flown() []departure {
	return []departure{{id: 11, pos: 0, delay: 10}, {id: 12, pos: 4, delay: -5}, {id: 13, pos: 9, delay: 30}}
}

func TestTruth(t *testing.T) {
	t.Parallel()
	want := []decision{
		{Departure: 11, Count: 1, Total: 10, Mean: 10, Longest: 10},
		{Departure: 12, Count: 2, Total: 5, Mean: 2.5, Longest: 10},
		{Departure: 13, Count: 3, Total: 35, Mean: 11.67, Longest: 30},
	}
	if got := truth(flown()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := truth([]departure{{id: 1, delay: -7}})[0].Longest; got != -7 {
		t.Errorf("longest delay of a single early departure: got %d, want -7", got)
	}
	got, err := decodeDecision(want[2].encode())
	if err != nil || got != want[2] {
		t.Errorf("decoded %+v, %v, want %+v", got, err, want[2])
	}
}

// written returns a log with the decisions at the given positions of flown. Each decision has the
// token that its writer believed it had, and the token under which the store accepted the decision.
func written(rows ...[3]int) []entry {
	var out []entry
	for i, r := range rows {
		d := truth(flown())[r[0]]
		d.Token = int64(r[1])
		out = append(out, entry{seq: int64(i) + 1, token: int64(r[2]), payload: d.encode()})
	}
	return out
}

func TestCheckLogFindsDamage(t *testing.T) {
	t.Parallel()
	whole := func() []entry { return written([3]int{0, 5, 5}, [3]int{1, 5, 5}, [3]int{2, 9, 9}) }
	for _, c := range []struct {
		name string
		log  []entry
		want damage
	}{
		{"whole", whole(), damage{}},
		{"lost at the end", whole()[:2], damage{Lost: 1}},
		{"empty", nil, damage{Lost: 3}},
		{"doubled", written([3]int{0, 5, 5}, [3]int{1, 5, 5}, [3]int{1, 5, 5}, [3]int{2, 5, 5}), damage{Doubled: 1}},
		{"out of order", written([3]int{0, 5, 5}, [3]int{2, 5, 5}, [3]int{1, 5, 5}), damage{OutOfOrder: 1}},
		{"a zombie accepted under the successor's token", written([3]int{0, 5, 5}, [3]int{1, 9, 9}, [3]int{2, 5, 9}),
			damage{Superseded: 1}},
		{"a zombie accepted under its own token", written([3]int{0, 5, 5}, [3]int{1, 9, 9}, [3]int{2, 5, 5}), damage{Superseded: 1}},
		{"the store's token falls", written([3]int{0, 5, 5}, [3]int{1, 9, 9}, [3]int{2, 9, 5}), damage{Superseded: 1}},
		{"a zombie's work done twice", written([3]int{0, 5, 5}, [3]int{1, 9, 9}, [3]int{1, 5, 9}, [3]int{2, 9, 9}),
			damage{Superseded: 1, Doubled: 1}},
		{"unreadable", append(whole(), entry{seq: 4, token: 9, payload: []byte("{")}), damage{Broken: 1}},
		{"unknown departure", append(whole(),
			entry{seq: 4, token: 9, payload: decision{Departure: 99, Token: 9}.encode()}), damage{Broken: 1}},
		{"gap in the numbers", append(whole()[:2], entry{seq: 4, token: 9, payload: whole()[2].payload}), damage{Broken: 1}},
		{"wrong figures", append(whole()[:2],
			entry{seq: 3, token: 9, payload: decision{Departure: 13, Count: 3, Total: 36, Mean: 12, Longest: 30,
				Token: 9}.encode()}),
			damage{Wrong: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got damage
			got.checkLog("ATL", flown(), c.log)
			if len(got.Examples) != min(got.total(), maxExamples) {
				t.Errorf("got %d examples of %d findings", len(got.Examples), got.total())
			}
			got.Examples = nil
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
