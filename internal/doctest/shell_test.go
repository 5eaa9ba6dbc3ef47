package doctest

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestShell has an interactive bash read every shell block of the pages, as when it is pasted: it parses, and no "!" is
// taken for an event of the history. Nothing of it is run.
func TestShell(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	n := 0
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			if b.lang != "sh" {
				continue
			}
			n++
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			cmd := exec.CommandContext(ctx, bash, "--norc", "--noprofile", "-o", "history", "-o", "histexpand", "-s")
			cmd.Stdin = strings.NewReader("block() {\n" + b.text + "}\n")
			out, err := cmd.CombinedOutput()
			cancel()
			if text := strings.TrimSpace(string(out)); err != nil || text != "" {
				t.Errorf("%s: bash says: %s %v", b, text, err)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d shell blocks: the pattern no longer finds them", n)
	}
}
