package sharding

import "testing"

// After one join, the budget is 20 ms.
func BenchmarkPlan100kShards100Members(b *testing.B) {
	c := even(100, 100_000)
	c.Members = append(c.Members, Member{ID: "x", Node: "x", Weight: 1})
	b.ReportAllocs()
	for b.Loop() {
		if p := (Minimal{}).Plan(c); len(p.Moves) != 990 {
			b.Fatal(len(p.Moves))
		}
	}
}
