package doctest

import "testing"

func TestFormatted(t *testing.T) {
	t.Parallel()
	for _, b := range goBlocks(t) {
		formatted(t, b)
	}
}
