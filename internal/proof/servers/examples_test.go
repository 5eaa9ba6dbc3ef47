package servers

import "testing"

// TestMayRunExamples: a server starts for examples only if flags may select one.
func TestMayRunExamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		run, list, worker string
		want              bool
	}{
		{"", "", "false", true},
		{"^Example", "", "false", true},
		{"Backend_Guard", "", "false", true},
		{"^(TestOpen|ExampleOpen)$", "", "false", true},
		{"^TestConformance$/^(Acquire)$", "", "false", false},
		{"^(TestA|TestB)$", "", "false", false},
		{"TestOpen", "", "false", false},
		{"^$", "", "false", false},
		{"", ".", "false", false},
		{"", "", "true", false},
	} {
		if got := mayRunExamples(c.run, c.list, c.worker); got != c.want {
			t.Errorf("-run %q -list %q, worker %q: got %v, want %v", c.run, c.list, c.worker, got, c.want)
		}
	}
}
