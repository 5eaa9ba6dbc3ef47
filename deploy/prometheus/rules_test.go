package prometheus

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal([]byte(read(t, "tenure.rules.yml")), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// promtool returns the path of promtool, which Debian's package prometheus contains.
func promtool(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: promtool runs in .ci/run")
	}
	path, err := exec.LookPath("promtool")
	switch {
	case err == nil:
		return path
	case servers.Required("prometheus"):
		t.Fatal("there is no promtool, which " + servers.RequireVariable + " requires: make servers installs it")
	}
	t.Skip("there is no promtool: make servers installs it")
	return ""
}

func TestRules(t *testing.T) {
	t.Parallel()
	tool := promtool(t)
	for _, args := range [][]string{{"check", "rules", "tenure.rules.yml"}, {"test", "rules", "tenure.rules_test.yml"}} {
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert has unit tests in which it is quiet, fires and clears, in that order. It also has an
// entry in docs/operations.md.
func TestAlertsAreTestedAndDocumented(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Name  string
			Rules []struct {
				Alert string `yaml:"alertname"`
				Fires []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "tenure.rules_test.yml")), &file); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]string)
	for _, test := range file.Tests {
		for _, r := range test.Rules {
			state := " quiet"
			if len(r.Fires) > 0 {
				state = " fires"
			}
			seen[r.Alert] += state
		}
	}
	page := read(t, "../../docs/operations.md")
	const text = `.+(?:\n  .+)*` // a line and its continuation lines
	entry := regexp.MustCompile(`(?m)^### (\w+)\n\n\* \*\*Means\*\*: ` + text + `\n\* \*\*Look at\*\*: ` + text + `\n\* \*\*Do\*\*: ` + text + `$`)
	documented := make(map[string]bool)
	for _, m := range entry.FindAllStringSubmatch(page, -1) {
		documented[m[1]] = true
	}
	n := 0
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		n++
		if seen[r.Alert] != " quiet fires quiet" {
			t.Errorf("%s: its tests are %q, want that it is quiet, fires, and is quiet", r.Alert, seen[r.Alert])
		}
		if !documented[r.Alert] {
			t.Errorf("%s has no entry in docs/operations.md with what it means, what to look at and what to do", r.Alert)
		}
		if want := "docs/operations.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
			t.Errorf("%s: runbook %q, want %q", r.Alert, r.Annotations["runbook"], want)
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" || r.Annotations["summary"] == "" {
			t.Errorf("%s: severity %q, summary %q", r.Alert, s, r.Annotations["summary"])
		}
	}
	if n != len(documented) || n == 0 {
		t.Errorf("%d alerts, and %d entries in docs/operations.md", n, len(documented))
	}
}

// The rules, the dashboard and the page name only metrics of tenureprom, and series that rules
// record. The dashboard shows every metric, except metrics per shard and constants.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	exists := make(map[string]bool)
	documented := regexp.MustCompile(`(?m)^//\t(tenure_\w+)`)
	for _, m := range documented.FindAllStringSubmatch(read(t, "../../observe/tenureprom/doc.go"), -1) {
		exists[m[1]] = true
	}
	recorded := make(map[string]bool)
	for _, r := range rules(t) {
		recorded[r.Record] = true
	}
	named := regexp.MustCompile(`[a-z_]+:tenure_\w+:\w+|\btenure_[a-z_]+\b`)
	suffix := regexp.MustCompile(`_(bucket|count|sum)$`)
	statement := regexp.MustCompile("`SELECT [^`]*`")
	used := make(map[string]bool)
	for _, path := range []string{"tenure.rules.yml", "grafana.json", "../../docs/operations.md"} {
		for _, name := range named.FindAllString(statement.ReplaceAllString(read(t, path), ""), -1) {
			if !strings.Contains(name, ":") {
				name = suffix.ReplaceAllString(name, "")
			}
			used[name] = true
			if !exists[name] && !recorded[name] {
				t.Errorf("%s: there is no %s", path, name)
			}
		}
	}
	for name := range exists {
		switch {
		case used[name], strings.Contains(name, "_shard_"):
		case name == "tenure_follower_lag_entries", name == "tenure_follower_apply_seconds",
			strings.HasPrefix(name, "tenure_follower_re"):
		default:
			t.Errorf("neither rules nor the dashboard use %s", name)
		}
	}
	var dashboard struct {
		Title  string
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, "grafana.json")), &dashboard); err != nil || len(dashboard.Panels) == 0 {
		t.Errorf("%v, %d panels", err, len(dashboard.Panels))
	}
}
