package examplebackend

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
)

// childDir makes the test binary a child of TestProcesses.
const childDir = "TENURE_EXAMPLE_CHILD_DIR"

const childSteps = 40

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := count(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// count raises a number by compare-and-set, and prints a line each time it was
// acknowledged.
func count(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := newClient(dir, &Options{Create: true})
	if err != nil {
		return err
	}
	for done := 0; done < childSteps; {
		page, err := c.Get(ctx, "n")
		if err != nil {
			return err
		}
		n := 0
		if p := page.Pairs[0]; p.Rev != 0 {
			if n, err = strconv.Atoi(string(p.Value)); err != nil {
				return err
			}
		}
		out, err := c.Apply(ctx, &kv.Batch{Txns: []kv.Txn{{
			If:  []kv.Compare{{Key: "n", Rev: page.Pairs[0].Rev}},
			Ops: []kv.Op{{Key: "n", Value: strconv.AppendInt(nil, int64(n+1), 10)}},
		}}})
		if err != nil {
			return err
		}
		if out.Results[0].OK {
			done++
			fmt.Println(done)
		}
	}
	return c.Close()
}

// TestProcesses lets three processes count together, one of which is killed: every
// acknowledged step is there, once, and nobody waits for the dead one.
func TestProcesses(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var children sync.WaitGroup
	acked := make([]int, 3)
	for i := range acked {
		child := exec.CommandContext(t.Context(), self)
		child.Env = append(os.Environ(), childDir+"="+dir)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		children.Go(func() {
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				acked[i]++
				if i == 0 && acked[i] == childSteps/4 {
					_ = child.Process.Kill() // it may just have ended
				}
			}
			if err := child.Wait(); err != nil && i != 0 {
				t.Errorf("child %d: %v", i, err)
			}
		})
	}
	children.Wait()
	sum := 0
	for _, n := range acked {
		sum += n
	}
	// The one that was killed may have written once more than it could say.
	n, err := strconv.Atoi(value(t, openClient(t, dir, defaultCompactAt), "n"))
	if err != nil || n < sum || n > sum+1 {
		t.Errorf("the number is %d, %v; acknowledged were %v", n, err, acked)
	}
	if acked[1] != childSteps || acked[2] != childSteps {
		t.Errorf("acknowledged were %v, want %d each for the last two", acked, childSteps)
	}
}
