package share

import (
	"flag"
	"testing"
)

var _ = flag.Int("given", 30, "given in TestOf")

func TestOf(t *testing.T) {
	want := 30
	if testing.Short() {
		want = 3
	}
	if got := Of(t, "given", 30, 3); got != want {
		t.Errorf("without the flag: got %d, want %d", got, want)
	}
	if err := flag.Set("given", "50"); err != nil {
		t.Fatal(err)
	}
	if got := Of(t, "given", 50, 3); got != 50 {
		t.Errorf("with the flag: got %d, want 50", got)
	}
	if got := Of(t, "few", 2, 3); got != 2 {
		t.Errorf("with more than there are: got %d, want 2", got)
	}
}
