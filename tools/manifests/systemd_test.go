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

// A unit has the settings of a file for systemd.
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

// verify has systemd read a unit, whose program is not installed here.
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

// TestUnits: systemd finds nothing to say of the units, and finds a mistake.
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
