//go:build unix

package main

import (
	"strings"
	"testing"
)

func TestSimulate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"-simulate -members 10 -shards 100 -time 2h -churn 0.5", exitOK, "0 shards forgotten"},
		{"-simulate -h", exitOK, "go run ./cmd/demo -simulate"},
		{"-simulate -members 1", exitInput, "2 to 10,000 members"},
		{"-simulate fast", exitInput, "unexpected argument"},
		{"-simulate -speed 3", exitInput, "-speed"},
	} {
		var out strings.Builder
		if code := run(t.Context(), strings.Fields(c.args), &out, &out); code != c.code ||
			!strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit code %d, want %d, and %q in:\n%s", c.args, code, c.code, c.want, out.String())
		}
	}
}
