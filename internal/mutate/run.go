package mutate

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Run runs one test of a binary, such as "TestCommit/lost_reply", and tells whether
// it failed. A test that hangs ends at the limit, and that is a failure too. A test
// that does not exist, or is skipped, fails t.
func Run(t testing.TB, binary, test string, limit time.Duration) (out string, failed bool) {
	t.Helper()
	pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
	b, err := exec.CommandContext(t.Context(), binary, "-test.run", pattern, "-test.v", "-test.timeout", limit.String()).CombinedOutput()
	out = string(b)
	if !strings.Contains(out, "=== RUN   "+test+"\n") {
		t.Fatalf("there is no test %s: %v\n%s", test, err, tail(out))
	}
	if err == nil && !strings.Contains(out, "--- PASS: "+test+" (") {
		t.Fatalf("%s was skipped:\n%s", test, tail(out))
	}
	return tail(out), err != nil
}

// tail is as much as is worth showing.
func tail(out string) string { return out[max(0, len(out)-4000):] }
