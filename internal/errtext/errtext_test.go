package errtext

import (
	"errors"
	"io"
	"testing"
)

func TestErrorf(t *testing.T) {
	inner := Errorf("tenure: reading: %w", io.EOF)
	both := Errorf("tenure: shard %q: %w: %w", "s", inner, io.ErrClosedPipe)
	if got, want := both.Error(), `tenure: shard "s": reading: EOF: io: read/write on closed pipe`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, err := range []error{inner, io.EOF, io.ErrClosedPipe} {
		if !errors.Is(both, err) {
			t.Errorf("%v does not match %v", both, err)
		}
	}
}
