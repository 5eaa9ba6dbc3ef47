package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/trace"
)

// traced makes a member lead a shard and commit, and returns the file of the member's trace.
func traced(t *testing.T, dir string) string {
	t.Helper()
	b, err := memory.Open(t.Context(), memory.New(), "ns", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = core.RunSingleton(ctx, b, "s", func(ctx context.Context, l *core.Lease) error {
		_, err := l.Append(ctx, []byte("a secret"))
		return err
	}, &core.Options{Node: "n", TraceDir: dir, TTL: time.Second})
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"+trace.Suffix))
	if err != nil || len(names) != 1 {
		t.Fatalf("the files are %q, %v", names, err)
	}
	return names[0]
}

// rewrite changes the lines of a trace.
func rewrite(t *testing.T, from, to string, change func(line string) string) {
	t.Helper()
	file, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, `{"sum":`) { // which the lines would no longer fit
			continue
		}
		if _, err := io.WriteString(w, change(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCheckTraces: good traces are accepted, and a breach is shown. An argument that is not a
// trace, or not a file, is refused before anything is read or written.
func TestCheckTraces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := traced(t, dir)
	tenure := func(args ...string) (code int, out, errs string) {
		var o, e bytes.Buffer
		code = run(t.Context(), append([]string{"check"}, args...), strings.NewReader(""), &o, &e)
		return code, o.String(), e.String()
	}
	// A dangling link represents a file that a member removed after the directory was read.
	if err := os.Symlink("gone", filepath.Join(dir, "a"+trace.Suffix)); err != nil {
		t.Fatal(err)
	}
	for _, arg := range []string{file, dir} {
		code, out, errs := tenure(arg, "-o", "json")
		var r trace.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitOK || errs != "" || len(r.Runs) != 1 || r.Leases != 1 ||
			r.Commits != 1 || r.Steps == 0 || r.Replayed != r.Steps || len(r.Breaches) != 0 {
			t.Errorf("check %s: code %d, %v: %s%s", arg, code, err, out, errs)
		}
	}
	svg := filepath.Join(t.TempDir(), "breach.svg")
	// The recorded join is for a different node from the one that was sent, and the lease was not
	// claimed, so there are two breaches.
	bad := filepath.Join(t.TempDir(), "bad"+trace.Suffix)
	rewrite(t, file, bad, func(l string) string {
		return strings.Replace(strings.ReplaceAll(l, `"node":"n"`, `"node":"n\u001b[31m<b>"`), `"k":"grant"`, `"k":"yield"`, 1)
	})
	code, out, errs := tenure(bad, "--svg", svg)
	if code != exitDamaged || !strings.Contains(out, "BREACH") || !strings.Contains(out, "S7 ") || !strings.Contains(out, "step ") ||
		!strings.Contains(errs, "2 breaches") {
		t.Errorf("a breach: code %d: %s%s", code, out, errs)
	}
	if strings.ContainsRune(out+errs, '\x1b') {
		t.Errorf("the output has what a terminal acts on: %q", out+errs)
	}
	picture, err := os.ReadFile(svg)
	if err != nil || !strings.HasPrefix(string(picture), "<svg ") || strings.Contains(string(picture), "<b>") {
		t.Errorf("the diagram: %v: %s", err, picture)
	}
	if code, _, errs := tenure(bad, "--svg", svg); code != exitUsage || !strings.Contains(errs, "does not exist") {
		t.Errorf("a diagram over another file: code %d: %s", code, errs)
	}

	// If one file cannot be read, the others are still checked.
	junk := filepath.Join(t.TempDir(), "junk"+trace.Suffix)
	if err := os.WriteFile(junk, []byte("junk\x1b[31m, which is long enough to be a header"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args  []string
		code  int
		shows string
		says  string
	}{
		{[]string{junk, file}, exitUsage, "UNREAD", "unread files: 1, such as " + junk},
		{[]string{file, file}, exitUsage, "UNREAD", "name each file once"},
		{[]string{file, filepath.Dir(junk)}, exitUsage, "UNREAD", "this is no trace"},
		{[]string{bad, junk}, exitDamaged, "UNREAD", "2 breaches"},
	} {
		code, out, errs := tenure(x.args...)
		if code != x.code || !strings.Contains(out, x.shows) || !strings.Contains(errs, x.says) || strings.ContainsRune(out+errs, '\x1b') {
			t.Errorf("check %q: code %d: %s%s", x.args, code, out, errs)
		}
	}

	fifo, empty, text := filepath.Join(t.TempDir(), "fifo"), t.TempDir(), filepath.Join(t.TempDir(), "text")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(text, []byte("password=hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitUsage, "takes the files"},
		{[]string{filepath.Join(empty, "none")}, exitNotFound, "there is no file"},
		{[]string{empty}, exitNotFound, "has no file that ends in"},
		{[]string{fifo}, exitUsage, "no regular file"},
		{[]string{"/dev/zero"}, exitUsage, "no regular file"},
		{[]string{text}, exitUsage, "this is no trace"},
		{[]string{file, "--clock-error", "2m"}, exitUsage, "--clock-error"},
		{[]string{file, "--clock-error", "-1s"}, exitUsage, "--clock-error"},
	} {
		code, out, errs := tenure(x.args...)
		if code != x.code || out != "" || !strings.Contains(errs, x.says) || strings.Contains(errs, "hunter2") {
			t.Errorf("check %q: code %d: %s%s", x.args, code, out, errs)
		}
	}
}
