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
	"strings"
	"syscall"
	"time"
)

// machine is what the figures were taken on.
type machine struct {
	began      time.Time
	commit     string
	loadBefore string
	sync       time.Duration // one fdatasync
}

func look(ctx context.Context) machine {
	return machine{began: time.Now(), commit: commit(ctx), loadBefore: load(), sync: syncTime()}
}

// describe writes a list; it ends the measurement.
func (m machine) describe(out *bytes.Buffer, command string) {
	fmt.Fprintf(out, "* %s, %d cores, %s of memory, Linux %s\n", cmp.Or(proc("cpuinfo", "model name"), runtime.GOARCH),
		runtime.NumCPU(), cmp.Or(proc("meminfo", "MemTotal"), "an unknown amount"), first("/proc/sys/kernel/osrelease"))
	fmt.Fprintf(out, "* fdatasync of 4 KiB in the folder for temporary files: median %s\n",
		millis(float64(m.sync.Microseconds())/1000))
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

// proc is a field of a file in /proc that has lines of "name: value".
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

// syncTime is the median time of a write that is on the disk when it ends; 0 where it
// cannot be had.
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

// libraries are the clients that are measured, with their versions.
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
