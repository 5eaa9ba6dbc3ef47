package doctest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

var (
	repoLink  = regexp.MustCompile(`https://github\.com/tenure-go/tenure/blob/main/([^#\s]+)`)
	namedPage = regexp.MustCompile(`(?:[a-z-]+/)*[A-Za-z-]+\.md\b`)
	tenureRun = regexp.MustCompile("`tenure ([a-z-]+)`")
	makeRun   = regexp.MustCompile("(?:`|run: )make ([a-z-]+)")
	ciRun     = regexp.MustCompile(`(?m)run: (\.ci/\S+)`)
	linked    = regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`)
	pinned    = regexp.MustCompile(`^[^@]+@[0-9a-f]{40}$`)
	platforms = regexp.MustCompile(`(?m)^PLATFORMS := (.+)$`)
)

// TestGitHubModules: dependabot's folders are exactly the modules of the tree.
func TestGitHubModules(t *testing.T) {
	t.Parallel()
	var got struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directories []string
		}
	}
	decodeYAML(t, ".github/dependabot.yml", &got)
	var dirs []string
	for _, u := range got.Updates {
		if u.Ecosystem == "gomod" {
			dirs = append(dirs, u.Directories...)
		}
	}
	var want []string
	err := fs.WalkDir(os.DirFS(root), ".", func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && p != "." && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if err == nil && d.Name() == "go.mod" {
			want = append(want, path.Join("/", path.Dir(p)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(dirs)
	slices.Sort(want)
	if !slices.Equal(dirs, want) {
		t.Errorf("dependabot looks at %q, want %q", dirs, want)
	}
}

// TestGitHubOwners: each path of CODEOWNERS exists and has an owner.
func TestGitHubOwners(t *testing.T) {
	t.Parallel()
	n := 0
	for line := range strings.Lines(pageText(t, ".github/CODEOWNERS")) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		n++
		if len(words) < 2 || !strings.HasPrefix(words[1], "@") {
			t.Errorf("CODEOWNERS: %q has no owner", words[0])
		}
		if words[0] == "*" {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, words[0])); err != nil {
			t.Errorf("CODEOWNERS: %v", err)
		}
	}
	if n < 2 {
		t.Errorf("CODEOWNERS has %d lines", n)
	}
}

// TestGitHubNames: pages, subcommands, targets of make and scripts that workflows and templates
// name exist.
func TestGitHubNames(t *testing.T) {
	t.Parallel()
	targets, commands := pageText(t, "Makefile"), sources(t, "cmd/tenure", "*.go")
	var found []string
	for _, pattern := range []string{"*.md", "ISSUE_TEMPLATE/*.yml", "workflows/*.yml"} {
		some, err := filepath.Glob(filepath.Join(root, ".github", pattern))
		if err != nil || len(some) == 0 {
			t.Fatalf(".github/%s: %d files, %v", pattern, len(some), err)
		}
		found = append(found, some...)
	}
	n := 0
	for _, file := range found {
		page, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		text := pageText(t, page)
		if filepath.Ext(page) == ".yml" {
			decodeYAML(t, page, new(any))
		}
		var paths []string
		for _, p := range []*regexp.Regexp{repoLink, ciRun} {
			for _, m := range p.FindAllStringSubmatch(text, -1) {
				paths = append(paths, m[1])
			}
		}
		paths = append(paths, namedPage.FindAllString(repoLink.ReplaceAllString(text, ""), -1)...)
		for _, p := range paths {
			if _, err := os.Stat(filepath.Join(root, p)); err != nil {
				t.Errorf("%s names %s: %v", page, p, err)
			}
		}
		runs := makeRun.FindAllStringSubmatch(text, -1)
		for _, m := range runs {
			if !strings.Contains(targets, "\n"+m[1]+":") {
				t.Errorf("%s: make %s: no such target", page, m[1])
			}
		}
		subcommands := tenureRun.FindAllStringSubmatch(text, -1)
		for _, m := range subcommands {
			if !regexp.MustCompile(`Use:\s+"` + m[1] + `[" ]`).MatchString(commands) {
				t.Errorf("%s: tenure %s: no such subcommand", page, m[1])
			}
		}
		n += len(paths) + len(runs) + len(subcommands)
	}
	if n < 12 {
		t.Errorf("%d names: the patterns no longer find them", n)
	}
}

// TestGitHubWorkflows: each job has a time-out, and each action is named by its commit. Only jobs
// that run no code from a pull request have write permissions.
func TestGitHubWorkflows(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d workflows: %v", len(files), err)
	}
	for _, file := range files {
		page := path.Join(".github/workflows", filepath.Base(file))
		var w struct {
			On          any
			Permissions map[string]string
			Jobs        map[string]struct {
				Timeout     int `yaml:"timeout-minutes"`
				Permissions map[string]string
				Steps       []struct{ Uses string }
			}
		}
		decodeYAML(t, page, &w)
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s: permissions %v, want to read contents", page, w.Permissions)
		}
		_, pulls := w.On.(map[string]any)["pull_request"]
		for name, job := range w.Jobs {
			if job.Timeout == 0 {
				t.Errorf("%s: job %s has no timeout-minutes", page, name)
			}
			if pulls && job.Permissions != nil {
				t.Errorf("%s: job %s runs code of a pull request with rights %v", page, name, job.Permissions)
			}
			for _, step := range job.Steps {
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					t.Errorf("%s: %s is not named by its commit", page, step.Uses)
				}
			}
		}
	}
}

// TestGitHubChecklist: the template of a pull request has CONTRIBUTING.md's questions.
func TestGitHubChecklist(t *testing.T) {
	t.Parallel()
	items := func(text, mark string) (all []string) {
		text = strings.ReplaceAll(linked.ReplaceAllString(text, "$1"), "`", "")
		for item := range strings.SplitSeq("\n"+text, "\n"+mark) {
			item, _, _ = strings.Cut(item, "\n\n")
			all = append(all, strings.Join(strings.Fields(item), " "))
		}
		return all[1:]
	}
	_, rest, _ := strings.Cut(pageText(t, "CONTRIBUTING.md"), "Before you send a change:\n\n")
	rest, _, _ = strings.Cut(rest, "\n\n")
	want, got := items(rest, "* "), items(pageText(t, ".github/pull_request_template.md"), "* [ ] ")
	if len(want) < 3 || !slices.Equal(got, want) {
		t.Errorf("the template has\n%q, CONTRIBUTING.md\n%q", got, want)
	}
}

// TestReleasePlatforms: a release has the platforms that make cross compiles, and Linux on amd64.
// The files that it packs exist.
func TestReleasePlatforms(t *testing.T) {
	t.Parallel()
	var got struct {
		Builds []struct {
			Main    string
			Targets []string
		}
		Archives []struct{ Files []string }
		Images   []struct{ Dockerfile string } `yaml:"dockers_v2"`
	}
	decodeYAML(t, ".goreleaser.yaml", &got)
	m := platforms.FindStringSubmatch(pageText(t, "Makefile"))
	if m == nil || len(got.Builds) != 1 || len(got.Archives) != 1 || len(got.Images) != 1 {
		t.Fatalf("the Makefile has %q, .goreleaser.yaml %+v", m, got)
	}
	want := append(strings.Fields(strings.ReplaceAll(m[1], "/", "_")), "linux_amd64")
	targets := slices.Sorted(slices.Values(got.Builds[0].Targets))
	if slices.Sort(want); !slices.Equal(targets, want) {
		t.Errorf("released for %q, want %q", targets, want)
	}
	for _, p := range append(got.Archives[0].Files, got.Builds[0].Main, got.Images[0].Dockerfile) {
		if _, err := os.Stat(filepath.Join(root, p)); err != nil {
			t.Errorf(".goreleaser.yaml: %v", err)
		}
	}
}

func decodeYAML(t *testing.T, page string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(pageText(t, page)), into); err != nil {
		t.Errorf("%s: %v", page, err)
	}
}
