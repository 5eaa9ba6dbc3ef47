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

type machine struct {
	began      time.Time
	commit     string
	loadBefore string
}

func look(ctx context.Context) machine {
	return machine{began: time.Now(), commit: commit(ctx), loadBefore: load()}
}

const (
	// While no program in this measurement runs, other programs may use this share of a core.
	// Figures from a busier machine cannot be compared.
	quietShare = 0.15
	// A row waits for up to this time until a busy machine is quiet.
	quietWait = time.Minute
	// One measurement of the machine's load takes this time.
	quietLook = 500 * time.Millisecond
)

// The conditions are measured before and after a row on a store, while no server of this program is
// running.
type conditions struct {
	flush  time.Duration // the median time of an fdatasync before the row; 0: unknown
	before float64       // the share of one core that other programs used
	after  float64
}

// If other programs used too much of a core, busy returns the reason to withhold the figures.
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

// calm waits until the machine is quiet or quietWait has passed.
func calm(ctx context.Context) (share float64, err error) {
	for until := time.Now().Add(quietWait); ; {
		if share, err = others(ctx); err != nil || share <= quietShare || time.Now().After(until) {
			return share, err
		}
	}
}

// The result is the share of a core that other programs use while this process waits, or 0 if it is
// unknown.
func others(ctx context.Context) (share float64, err error) {
	began, before := time.Now(), cpuTime()
	if err := pause(ctx, quietLook); err != nil {
		return 0, err
	}
	return float64(cpuTime()-before) / float64(time.Since(began)), nil
}

// The unit of /proc/stat is the same on every Linux system.
const ticks = time.Second / 100

// cpuTime returns the time for which the cores have been busy since the machine started. It
// includes time that the host gave to other virtual machines.
func cpuTime() time.Duration {
	const idle, iowait, guest = 3, 4, 8 // users' time includes guests' time
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

// The file's lines have the form "name: value".
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

// syncTime returns the median time for a disk write, or 0 if the time cannot be measured.
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
