package mutate

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Mutant is broken code, with the name of its killer. The killer is the test, such as
// "TestCommit/lost_reply", that must fail because of this code.
type Mutant struct {
	Name, Killer string
	Edits        []Edit
}

// Code without a mutant gets the time limit patience, because a killer must pass even on a busy
// machine. With a mutant, a killer counts as hanging if it exceeds both All's limit and slack times
// its duration without the mutant.
const (
	patience = 10 * time.Minute
	slack    = 20
)

// All runs the killer of each chosen mutant. The killer must pass without the mutant, and fail or
// hang with it. A killer that runs for less than limit never counts as hanging. The mutants
// argument must be the list in mutants_test.go in the working folder. Set parallel if the killers
// need neither a server nor a quiet machine. If parallel is false, killers run one at a time.
func All(t *testing.T, choice *Choice, limit time.Duration, parallel bool, mutants []Mutant) {
	t.Helper()
	var mu sync.Mutex
	sound := make(map[string]func() (time.Duration, error)) // by killer: its duration without a mutant
	choice.Each(t, parallel, mutants, func(ctx context.Context, t *testing.T, n int, none, b Built) error {
		killer := mutants[n].Killer
		mu.Lock()
		if sound[killer] == nil {
			sound[killer] = sync.OnceValues(func() (time.Duration, error) {
				start := time.Now()
				out, failed, err := none.Run(ctx, killer, patience)
				if err == nil && failed {
					err = fmt.Errorf("%s fails without a mutant:\n%s", killer, out)
				}
				return time.Since(start), err
			})
		}
		passes := sound[killer]
		mu.Unlock()
		took, err := passes()
		if err != nil {
			return err
		}
		limit := max(limit, slack*took)
		out, failed, err := b.Run(ctx, killer, limit)
		if strings.Contains(out, "panic: test timed out after") {
			t.Logf("%s hung for %v; without the mutant it takes %v", killer, limit, took)
		}
		if err == nil && !failed {
			err = fmt.Errorf("survived %s:\n%s", killer, out)
		}
		return err
	})
}

// grace is how long a running mutant may continue after the time limit.
const grace = 20 * time.Second

// Each calls try for the mutants that c chooses, in that order, until the time is up. It fails t if
// try returns an error, if mutants differs from the list in mutants_test.go in the working folder,
// or if an edit cannot be applied. The last logged line contains the number of mutants that died.
func (c *Choice) Each(t *testing.T, parallel bool, mutants []Mutant,
	try func(ctx context.Context, t *testing.T, n int, none, b Built) error,
) {
	t.Helper()
	edits := make([][]Edit, len(mutants))
	for n, m := range mutants {
		edits[n] = m.Edits
		Fit(t, m.Edits...)
	}
	Listed(t, "mutants_test.go", edits...)
	if !c.on {
		return
	}
	order, err := c.order(len(mutants))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if !c.until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.until.Add(grace))
		defer cancel()
	}
	chosen := len(order)
	// All mutants are built, so the build cache also contains the code of mutants that are chosen
	// later.
	none, built, err := share(ctx, t.TempDir(), edits)
	if err != nil {
		if ctx.Err() == nil {
			t.Fatal(err)
		}
		order = nil // there was no time left to build
	}
	begin := t.Context() // mutants begin until it ends
	if !c.until.IsZero() {
		var cancel context.CancelFunc
		begin, cancel = context.WithDeadline(begin, c.until)
		defer cancel()
	}
	if c.span > 0 {
		var cancel context.CancelFunc
		begin, cancel = context.WithTimeout(begin, c.span)
		defer cancel()
	}
	var tried, next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(order)) && begin.Err() == nil; i = next.Add(1) - 1 {
			n := order[i]
			t.Run(mutants[n].Name, func(t *testing.T) {
				b, err := built[n], error(nil)
				if b.path == "" {
					b.path, err = buildEdited(ctx, t.TempDir(), edits[n])
				}
				if err == nil {
					err = try(ctx, t, n, none, b)
				}
				switch {
				case ctx.Err() != nil: // the reason may be lack of time
					t.Skip("not tried: the time is over")
				case errors.Is(err, errSlow):
					t.Skipf("not tried: %v", err)
				case err != nil:
					t.Errorf("failed: %v", err)
				default:
					tried.Add(1)
				}
			})
		}
	}
	var all sync.WaitGroup
	all.Go(work)
	for range runtime.GOMAXPROCS(0) - 1 {
		if parallel {
			all.Go(work)
		}
	}
	all.Wait()
	t.Logf("%d mutants died, of %d chosen and %d in all", tried.Load(), chosen, len(mutants))
}

// errSlow means that, according to a Gauge of package ample, the machine is currently too slow for
// the test to prove anything.
var errSlow = errors.New("machine too slow to tell")

// Run runs one test of the binary, such as "TestCommit/lost_reply", and reports whether it failed.
// At the time limit, Run ends a hanging test, and reports it as failed. If the test does not exist,
// is skipped, or leaves processes with its output open, Run returns an error.
func (b Built) Run(ctx context.Context, test string, limit time.Duration) (out string, failed bool, err error) {
	pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
	cmd := b.Command(ctx, "-test.run", pattern, "-test.v", "-test.timeout", limit.String())
	cmd.WaitDelay = 5 * time.Second
	text, err := cmd.CombinedOutput()
	out = string(text)
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
	case err == nil && strings.Contains(out, "machine too slow to tell"):
		err = fmt.Errorf("%s: %w", test, errSlow)
	case !strings.Contains(out, "=== RUN   "+test+"\n"):
		err = fmt.Errorf("there is no test %s: %v\n%s", test, err, tail(out))
	case err == nil && !strings.Contains(out, "--- PASS: "+test+" ("):
		err = fmt.Errorf("%s was skipped:\n%s", test, tail(out))
	default:
		return tail(out), err != nil, nil
	}
	return tail(out), false, err
}

func tail(out string) string { return out[max(0, len(out)-4000):] }
