package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A unit contains the settings in a systemd unit file.
type unit struct {
	*testing.T
	text     string
	settings map[string]string
}

func units(t *testing.T) map[string]unit {
	t.Helper()
	files, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(files) != 2 {
		t.Fatalf("units: %v, want two (%v)", files, err)
	}
	out := map[string]unit{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		u := unit{t, string(text), map[string]string{}}
		for line := range strings.Lines(u.text) {
			line = strings.TrimSpace(line)
			name, value, found := strings.Cut(line, "=")
			switch {
			case line == "", line[0] == '#', line[0] == '[':
			case !found || u.settings[name] != "":
				t.Errorf("%s: %q is no setting, or is there twice", file, line)
			default:
				u.settings[name] = value
			}
		}
		out[filepath.Base(file)] = u
	}
	return out
}

func (u unit) seconds(name string) time.Duration {
	u.Helper()
	n, err := strconv.Atoi(u.settings[name])
	if err != nil {
		u.Errorf("%s=%q is no number of seconds", name, u.settings[name])
	}
	return time.Duration(n) * time.Second
}

// verify makes systemd check a unit. The unit's program is not installed here.
func verify(t *testing.T, name, text string) string {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed (apt-get install systemd)")
	}
	for _, program := range []string{"/usr/local/bin/orders", "/usr/local/bin/tenure"} {
		text = strings.ReplaceAll(text, program+" ", "/bin/true ")
	}
	path := filepath.Join(t.TempDir(), strings.Replace(name, "@", "@daemon", 1))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}

// TestUnits: systemd reports nothing about the units, and finds a planted mistake.
func TestUnits(t *testing.T) {
	t.Parallel()
	for name, u := range units(t) {
		if out := verify(t, name, u.text); out != "" {
			t.Errorf("%s: systemd says %s", name, out)
		}
		if out := verify(t, name, strings.Replace(u.text, "KillMode=", "KilMode=", 1)); !strings.Contains(out, "KilMode") {
			t.Errorf("%s: a setting that systemd does not know passes: %s", name, out)
		}
	}
}

// exposure returns systemd's score, from 0 to 10, for how much of the system a unit can reach.
func exposure(t *testing.T, name, text string) float64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--no-pager", path).CombinedOutput()
	_, rest, found := strings.Cut(string(out), "Overall exposure level for ")
	_, rest, _ = strings.Cut(rest, ": ")
	level, _, _ := strings.Cut(rest, " ")
	n, failed := strconv.ParseFloat(level, 64)
	if err != nil || !found || failed != nil {
		t.Fatalf("%s: systemd-analyze security: %v, %v: %s", name, err, failed, out)
	}
	return n
}

// TestExposure: the units can reach no more of the system than they need. Without the system call
// filter, or without any protection, they could reach more.
func TestExposure(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed (apt-get install systemd)")
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--help").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "--offline") {
		t.Skipf("systemd-analyze has no --offline, which it has from systemd 250 on: %v", err)
	}
	const most = 2.5
	for name, u := range units(t) {
		if got := exposure(t, name, u.text); got > most {
			t.Errorf("%s: exposure %.1f, want at most %.1f: systemd-analyze security --offline=true says by what", name, got, most)
		}
		if got := exposure(t, name, strings.Replace(u.text, "SystemCallFilter=", "#", 1)); got <= exposure(t, name, u.text) {
			t.Errorf("%s: exposure %.1f without a filter of system calls", name, got)
		}
		var bare strings.Builder
		for line := range strings.Lines(u.text) {
			if !strings.HasPrefix(line, "Protect") && !strings.HasPrefix(line, "Restrict") && !strings.HasPrefix(line, "SystemCall") {
				bare.WriteString(line)
			}
		}
		if got := exposure(t, name, bare.String()); got <= most {
			t.Errorf("%s: exposure %.1f without most of what restricts it", name, got)
		}
	}
}
