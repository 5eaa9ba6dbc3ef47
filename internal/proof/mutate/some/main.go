// Command some tries as many mutants as time allows. The command begins with the mutants of changed
// files, and then tries other mutants in an order that the commit determines. The command fails if
// a mutant survives, or if a test that should kill mutants fails on unchanged code.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	workers = 2
	share   = 40 * time.Second // shortest time of a package after its mutants are built
	grace   = 30 * time.Second // for running mutants, which then end and count as not tried
)

func main() {
	budget := flag.Duration("for", 5*time.Minute, "how `long` mutants are begun")
	flag.Parse()
	if err := some(time.Now().Add(*budget)); err != nil {
		fmt.Println("mutants: FAILED:", err)
		os.Exit(1)
	}
}

func some(end time.Time) error {
	r := &repository{}
	var err error
	if r.root, err = git(".", "rev-parse", "--show-toplevel"); err != nil {
		return err
	}
	head, err := git(r.root, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	pkgs, err := packages(r.root)
	if err != nil {
		return err
	}
	base, why := r.base(head)
	if base == "" {
		fmt.Println("mutants: no commit is known that this one can be compared with")
	} else if err := r.compare(base); err != nil {
		return err
	} else {
		fmt.Printf("mutants: those of files that have changed since %.12s, %s, come first\n", base, why)
	}
	first, then := plan(head, pkgs, r.concerns)
	run := &run{root: r.root, end: end}
	changed := run.all(first)
	others := run.all(then)
	if len(run.failed) > 0 {
		return fmt.Errorf("those of %s", strings.Join(run.failed, ", "))
	}
	fmt.Println(summary(changed, count(first), others, count(then)))
	return nil
}

func summary(changed, allChanged, others, allOthers int) string {
	left := fmt.Sprint(allChanged+allOthers-changed-others, " left for make check")
	if changed < allChanged {
		left += fmt.Sprintf(", %d OF THEM OF CHANGED FILES", allChanged-changed)
	}
	if changed+others == 0 {
		return "mutants: NONE was tried in this time; " + left
	}
	return fmt.Sprintf("mutants: %d of changed files and %d others tried, all died; %s", changed, others, left)
}

// run tries units until its time is up.
type run struct {
	root   string
	end    time.Time
	mu     sync.Mutex
	failed []string // packages
}

// The method tries the mutants of units, and returns how many died. Each unit gets an equal share
// of the remaining time.
func (r *run) all(units []unit) (died int) {
	next := 0
	work := func() {
		for {
			r.mu.Lock()
			left := time.Until(r.end)
			if next == len(units) || left <= 0 {
				r.mu.Unlock()
				return
			}
			u := units[next]
			has := min(left, max(share, left*workers/time.Duration(len(units)-next)))
			next++
			r.mu.Unlock()
			n := r.try(u, has)
			r.mu.Lock()
			died += n
			r.mu.Unlock()
		}
	}
	var all sync.WaitGroup
	for range workers {
		all.Go(work)
	}
	all.Wait()
	return died
}

var result = regexp.MustCompile(`(\d+) mutants died, of \d+ chosen`)

// The method tries a unit's mutants for the given time, and returns how many died.
func (r *run) try(u unit, has time.Duration) int {
	start := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), r.end.Add(grace))
	defer cancel()
	numbers := make([]string, len(u.numbers))
	for i, n := range u.numbers {
		numbers[i] = strconv.Itoa(n)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-v", "-timeout=1h", "-run=^TestMutants$", "./"+u.pkg,
		"-args", "-mutants="+strings.Join(numbers, ","), fmt.Sprint("-mutants.until=", r.end.Unix()), fmt.Sprint("-mutants.for=", has))
	cmd.Dir = r.root
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	died, ok := verdict(string(out), err, ctx.Err() != nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ok {
		r.failed = append(r.failed, u.pkg)
		fmt.Printf("%s\n%s: %v\n", out, u.pkg, err)
		return 0
	}
	fmt.Printf("mutants: %-24s %3d of %3d in %3.0f s\n", u.pkg, died, len(u.numbers), time.Since(start).Seconds())
	return died
}

// verdict returns the number of mutants that died, according to the output of go test, and reports
// whether no test failed. A run that was cut off proves nothing unless a test had already failed.
func verdict(out string, err error, cut bool) (died int, ok bool) {
	if cut {
		return 0, !strings.Contains(out, ": failed: ") // Each prints it immediately
	}
	m := result.FindStringSubmatch(out)
	if err != nil || m == nil {
		return 0, false
	}
	died, err = strconv.Atoi(m[1])
	return died, err == nil
}
