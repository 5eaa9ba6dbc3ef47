package sqlite_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRestartInPlace kills a process with SIGKILL and starts it again, with the default
// TTL of 10 s: it knows that the former process has ended (C14).
func TestRestartInPlace(t *testing.T) {
	const rounds, ttl = 10, 10 * time.Second
	path, tmp := filepath.Join(t.TempDir(), "tenure.db"), t.TempDir()
	start := func() (kill func()) {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
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
		kill = func() { cmd.Process.Kill(); _, _ = io.Copy(io.Discard, out); _ = cmd.Wait(); in.Close() }
		line, err := bufio.NewReader(out).ReadString('\n')
		if !strings.HasPrefix(line, "leads") {
			kill()
			t.Fatalf("the process says %q, %v", line, err)
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
	if took[rounds/2] > ttl/2 {
		t.Errorf("a restarted process waits %v for its shard, as if it did not know of the former one's end", took[rounds/2])
	}
}
