package tenuretest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/tenuretest"
)

func TestOrders(t *testing.T) {
	t.Parallel()
	tenuretest.Run(t, nil, orders)
}

func TestOrdersControl(t *testing.T) {
	t.Parallel()
	tenuretest.Control(t, &tenuretest.Options{Seeds: 100}, orders)
}

func TestFollower(t *testing.T) {
	t.Parallel()
	tenuretest.Run(t, &tenuretest.Options{Seeds: 10}, accounts(false))
}

// planted is the application with a bug: its effect on the board is not fenced.
func planted(w *tenuretest.World) {
	b := &board{}
	w.Start(3, func(ctx context.Context, m *tenuretest.Member) error { return run(ctx, m, b) })
	w.Play()
	w.Stop()
	if b.wrong != nil {
		w.Errorf("%v", b.wrong)
	}
}

// find returns the first of 100 seeds that fails.
func find(t *testing.T, o *tenuretest.Options, scenario func(*tenuretest.World)) (seed int, failures, events []string) {
	t.Helper()
	for seed := 1; seed <= 100; seed++ {
		if failures, events := tenuretest.Played(t, o, seed, scenario); len(failures) > 0 {
			return seed, failures, events
		}
	}
	return 0, nil, nil
}

// Each bug is found within 100 seeds, by the faults that can show it. Every replay has the same
// failure after the same events. Events at one instant may be in a different order.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		faults   tenuretest.Faults
		scenario func(*tenuretest.World)
	}{
		{"all", tenuretest.AllFaults, planted},
		{"pause", tenuretest.Pause, planted},
		{"suspend", tenuretest.Suspend, planted},
		{"follower", tenuretest.AllFaults, accounts(true)},
		{"follower crash", tenuretest.Crash, accounts(true)},
		{"follower lost reply", tenuretest.LostReply, accounts(true)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := &tenuretest.Options{Faults: c.faults}
			seed, failures, events := find(t, o, c.scenario)
			if seed == 0 {
				t.Fatal("the bug is not found in 100 seeds")
			}
			t.Logf("seed %d: %s", seed, failures[0])
			slices.Sort(events)
			for range share.Of(t, "replays", 5, 1) {
				again, happened := tenuretest.Played(t, o, seed, c.scenario)
				slices.Sort(happened)
				if !slices.Equal(again, failures) || !slices.Equal(happened, events) {
					t.Errorf("seed %d fails with %q after\n%s\nand again with %q after\n%s", seed, failures, strings.Join(events, "\n"),
						again, strings.Join(happened, "\n"))
				}
			}
		})
	}
}

// If a member is not stopped between its check and its effect, it performs no effect under a
// superseded lease, because leases are exclusive.
func TestNoFalseAlarm(t *testing.T) {
	t.Parallel()
	o := &tenuretest.Options{Faults: tenuretest.Cut | tenuretest.Crash | tenuretest.LostReply}
	seeds := share.Of(t, "seeds", 30, 6)
	for seed := 1; seed <= seeds; seed++ {
		if failures, events := tenuretest.Played(t, o, seed, planted); len(failures) > 0 {
			t.Fatalf("seed %d: %q\n%s", seed, failures, strings.Join(events, "\n"))
		}
	}
}

// This test checks the output of a failing test, and that the printed command replays the same
// events. The test also checks a control whose scenario does not fail. The failing tests run in
// another process.
func TestFailuresSayHow(t *testing.T) {
	t.Parallel()
	if os.Getenv("TENURETEST_FAIL") != "" {
		t.Run("bug", func(t *testing.T) { tenuretest.Run(t, &tenuretest.Options{Seeds: 100}, planted) })
		t.Run("control", func(t *testing.T) { tenuretest.Control(t, &tenuretest.Options{Seeds: 2}, func(*tenuretest.World) {}) })
		t.Run("main", func(t *testing.T) {
			tenuretest.Run(t, nil, func(w *tenuretest.World) {
				w.Start(1, func(context.Context, *tenuretest.Member) error { return nil })
				w.Await("never", func() bool { return false })
				t.Error("a scenario goes on after it failed")
			})
		})
		return
	}
	test := func(pattern string) string {
		c := exec.Command(os.Args[0], "-test.run", pattern)
		c.Env = append(os.Environ(), "TENURETEST_FAIL=1")
		out, err := c.CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			t.Fatalf("tests with a bug end with %v:\n%s", err, out)
		}
		return string(out)
	}
	out := test("^TestFailuresSayHow$")
	replay := regexp.MustCompile(`go test -run '(\S+/\^bug\$/\^seed=\d+\$)'`).FindStringSubmatch(out)
	failure := regexp.MustCompile(`the board goes back from order \d+ to \d+`).FindString(out)
	if replay == nil || failure == "" {
		t.Fatalf("no failure, or no command that plays it again, in:\n%s", out)
	}
	if again := test(replay[1]); !strings.Contains(again, failure) {
		t.Errorf("%s says, and not %q:\n%s", replay[0], failure, again)
	}
	for _, want := range []string{
		"the control did not fail in 2 seeds", "m1 ended: main has returned before it was stopped", "not within 16m40s: never",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "goes on after it failed") {
		t.Error("a scenario goes on after Await failed")
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []tenuretest.Options{
		{Seeds: -1}, {Seeds: 1 << 30}, {TTL: time.Millisecond}, {TTL: 2 * time.Hour}, {Length: -1}, {Length: 25 * time.Hour}, {Faults: 1 << 7},
	} {
		if err := tenuretest.Check(&o); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", o, err)
		}
	}
	for value, good := range map[string]bool{"7": true, "0": false, "-1": false, "many": false} {
		t.Setenv("TENURETEST_SEEDS", value)
		if err := tenuretest.Check(nil); errors.Is(err, core.ErrInvalid) == good {
			t.Errorf("TENURETEST_SEEDS=%s: %v", value, err)
		}
	}
}
