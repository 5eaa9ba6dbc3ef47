package sqlite_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// TestRestartInPlace kills a process with SIGKILL and starts a new one. The new process does not
// wait for a TTL, because it knows that the former process has ended (C14).
func TestRestartInPlace(t *testing.T) {
	const rounds = 10
	path, tmp := filepath.Join(t.TempDir(), "tenure.db"), t.TempDir()
	start := func() (kill func()) {
		ctx, cancel := context.WithTimeout(t.Context(), ample.Time) // which kills a process that waits for leadTTL
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"=lead:"+path, "TMPDIR="+tmp)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill = func() { cancel(); _, _ = io.Copy(io.Discard, out); _ = cmd.Wait(); in.Close() }
		line, err := bufio.NewReader(out).ReadString('\n')
		if !strings.HasPrefix(line, "leads") {
			kill()
			t.Fatalf("the process says %q, %v: does it wait for its shard?", line, err)
		}
		return kill
	}
	kill := start()
	var took []time.Duration
	for range rounds {
		kill()
		began := time.Now()
		kill = start()
		took = append(took, time.Since(began))
	}
	kill()
	slices.Sort(took)
	t.Logf("from the start of the process to its lease: median %v, longest %v", took[rounds/2], took[rounds-1])
}
