package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// machine describes the machine of the figures.
type machine struct {
	began      time.Time
	commit     string
	loadBefore string
}

func look(ctx context.Context) machine {
	return machine{began: time.Now(), commit: commit(ctx), loadBefore: load()}
}

const (
	// quietShare is the share of one core that other programs may use while nothing of ours runs.
	// On a busier machine figures cannot be compared.
	quietShare = 0.15
	// quietWait is how long a row waits for a busy machine to become quiet.
	quietWait = time.Minute
	// quietLook is how long one look takes.
	quietLook = 500 * time.Millisecond
)

// conditions describe the machine around one row on one store, while no server of this program ran.
type conditions struct {
	flush  time.Duration // the median of one fdatasync before it; 0: unknown
	before float64       // the share of one core that others used
	after  float64
}

// busy returns why the figures do not count, or "".
func (c conditions) busy() string {
	for _, at := range []struct {
		when  string
		share float64
	}{{"before it", c.before}, {"after it", c.after}} {
		if at.share > quietShare {
			return fmt.Sprintf("withheld: others used %.0f %% of a core %s: end them, and measure again", 100*at.share, at.when)
		}
	}
	return ""
}

// calm waits until the machine is quiet, at most quietWait, and returns the share of one core that
// others use.
func calm(ctx context.Context) (share float64, err error) {
	for until := time.Now().Add(quietWait); ; {
		if share, err = others(ctx); err != nil || share <= quietShare || time.Now().After(until) {
			return share, err
		}
	}
}

// others returns the share of one core that is used while this process waits, or 0 if the system
// does not report it.
func others(ctx context.Context) (share float64, err error) {
	began, before := time.Now(), cpuTime()
	if err := pause(ctx, quietLook); err != nil {
		return 0, err
	}
	return float64(cpuTime()-before) / float64(time.Since(began)), nil
}

// ticks is the unit of /proc/stat, which is the same on every Linux.
const ticks = time.Second / 100

// cpuTime returns how long the cores have worked since the machine began. It includes time that the
// host reports as given to other machines.
func cpuTime() time.Duration {
	const idle, iowait, guest = 3, 4, 8 // guests' time is among the users'
	var n int64
	for i, field := range strings.Fields(strings.TrimPrefix(first("/proc/stat"), "cpu")) {
		v, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		if i != idle && i != iowait && i < guest {
			n += v
		}
	}
	return time.Duration(n) * ticks
}

// describe writes a list, at the end of the measurement.
func (m machine) describe(out *bytes.Buffer, command string) {
	fmt.Fprintf(out, "* %s, %d cores, %s of memory, Linux %s\n", cmp.Or(proc("cpuinfo", "model name"), runtime.GOARCH),
		runtime.NumCPU(), cmp.Or(proc("meminfo", "MemTotal"), "an unknown amount"), first("/proc/sys/kernel/osrelease"))
	fmt.Fprintf(out, "* load average (1, 5, 15 minutes) before: %s; after: %s, this program and its servers included\n",
		m.loadBefore, load())
	fmt.Fprintf(out, "* Tenure %s, %s; %s\n", m.commit, runtime.Version(), libraries())
	fmt.Fprintf(out, "* %s, in %v: `%s`\n", m.began.UTC().Format("2 January 2006, 15:04 UTC"),
		time.Since(m.began).Round(time.Minute), command)
}

func first(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

func load() string {
	fields := strings.Fields(first("/proc/loadavg"))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// proc returns a field of a file in /proc with lines of "name: value".
func proc(file, name string) string {
	text, err := os.ReadFile("/proc/" + file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if n, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(n) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// syncTime returns the median time of a write to the disk, or 0 if it cannot be measured.
func syncTime() time.Duration {
	f, err := os.CreateTemp("", "tenure-bench-")
	if err != nil {
		return 0
	}
	defer func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }() // it is a temporary file
	took := make([]time.Duration, 50)
	for i := range took {
		start := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "of an unknown commit"
	}
	return "at " + strings.TrimSpace(string(out))
}

// libraries returns the measured clients with their versions.
func libraries() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "clients of unknown versions"
	}
	measured := []string{"go.etcd.io/etcd/client/v3", "github.com/go-zookeeper/zk", "github.com/hashicorp/consul/api",
		"github.com/jackc/pgx/v5", "github.com/go-redsync/redsync/v4", "k8s.io/client-go"}
	var have []string
	for _, d := range info.Deps {
		if slices.Contains(measured, d.Path) {
			have = append(have, d.Path+" "+d.Version)
		}
	}
	return strings.Join(have, ", ")
}
