package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

// pkg is a package with mutants. The path is relative to the root of the repository.
type pkg struct {
	path    string
	mutants []mutate.Found
}

// packages returns the packages with mutants.
func packages(root string) (all []pkg, err error) {
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && d.Name()[0] == '.':
			return fs.SkipDir
		case d.Name() != "mutants_test.go":
			return nil
		}
		mutants, err := mutate.Read(file)
		if err != nil || len(mutants) == 0 {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		all = append(all, pkg{filepath.ToSlash(dir), mutants})
		return err
	})
	if err == nil && len(all) == 0 {
		err = errors.New("there are no mutants")
	}
	return all, err
}

// unit is the work of one process: mutants of a package, by their positions in its list.
type unit struct {
	pkg     string
	numbers []int
}

func count(units []unit) (n int) {
	for _, u := range units {
		n += len(u.numbers)
	}
	return n
}

// plan returns two lists: the mutants that a change affects, and the other mutants. The commit
// determines the order of the packages and of the mutants in each package. Several commits together
// therefore try all mutants.
func plan(commit string, pkgs []pkg, concerns func(pkg, mutate.Found) bool) (first, then []unit) {
	rank := func(texts ...string) string {
		sum := sha256.Sum256([]byte(commit + "\n" + strings.Join(texts, "\n")))
		return string(sum[:])
	}
	pkgs = slices.Clone(pkgs)
	slices.SortFunc(pkgs, func(a, b pkg) int { return cmp.Compare(rank(a.path), rank(b.path)) })
	for _, p := range pkgs {
		changed, others := unit{pkg: p.path}, unit{pkg: p.path}
		for n, m := range p.mutants {
			if concerns(p, m) {
				changed.numbers = append(changed.numbers, n)
			} else {
				others.numbers = append(others.numbers, n)
			}
		}
		for _, u := range []unit{changed, others} {
			slices.SortFunc(u.numbers, func(a, b int) int {
				return cmp.Compare(rank(p.path, p.mutants[a].Name), rank(p.path, p.mutants[b].Name))
			})
		}
		if len(changed.numbers) > 0 {
			first = append(first, changed)
		}
		if len(others.numbers) > 0 {
			then = append(then, others)
		}
	}
	return first, then
}

// repository records which files have changed since a commit.
type repository struct {
	root    string
	changed map[string]bool
	before  map[string][]mutate.Found // by changed file of mutants: its mutants at that commit
}

// base returns the commit to compare with, which must be an ancestor of head. The first choice is
// the commit in CI_BASE, and the second is the last local commit whose mutants all died, as "make
// mutants" recorded. The third choice is the commit where the branch left origin/main, and the last
// is the previous commit.
func (r *repository) base(head string) (commit, why string) {
	if c := r.ancestor(os.Getenv("CI_BASE")); c != "" {
		return c, "which CI_BASE names"
	}
	if cache, err := command(r.root, "go", "env", "GOCACHE"); err == nil {
		if b, err := os.ReadFile(filepath.Join(cache, "tenure-mutants-died")); err == nil {
			if c := r.ancestor(strings.TrimSpace(string(b))); c != "" {
				return c, "at which all died"
			}
		}
	}
	if c, err := git(r.root, "merge-base", "origin/main", head); err == nil && c != head {
		return c, "where it left origin/main"
	}
	return r.ancestor("HEAD~1"), "the commit before"
}

// ancestor returns the name of a commit if it is an ancestor of HEAD, and "" otherwise.
func (r *repository) ancestor(commit string) string {
	if commit == "" {
		return ""
	}
	name, err := git(r.root, "rev-parse", "--verify", "--end-of-options", commit+"^{commit}")
	if err != nil {
		return ""
	}
	if _, err := git(r.root, "merge-base", "--is-ancestor", name, "HEAD"); err != nil {
		return ""
	}
	return name
}

// compare finds the changes since a commit.
func (r *repository) compare(commit string) error {
	names, err := git(r.root, "diff", "--name-only", "-z", "--end-of-options", commit)
	if err != nil {
		return err
	}
	r.changed, r.before = make(map[string]bool), make(map[string][]mutate.Found)
	for name := range strings.SplitSeq(names, "\x00") {
		r.changed[name] = true
		if path.Base(name) != "mutants_test.go" {
			continue
		}
		// A missing or unreadable file counts as a file without mutants.
		if src, err := git(r.root, "show", commit+":"+name); err == nil {
			r.before[name], _ = mutate.ReadSource(name, []byte(src))
		}
	}
	return nil
}

// concerns reports whether the change affects a mutant. A change affects each new or changed
// mutant. It also affects a mutant if it changes a file that the mutant edits, the killer's file,
// or the suite that kills the mutant.
func (r *repository) concerns(p pkg, m mutate.Found) bool {
	same := func(was mutate.Found) bool {
		return was.Name == m.Name && was.Killer == m.Killer && slices.Equal(was.Edits, m.Edits)
	}
	if list := path.Join(p.path, "mutants_test.go"); r.changed[list] && !slices.ContainsFunc(r.before[list], same) {
		return true
	}
	for _, e := range m.Edits {
		if r.changed[path.Join(p.path, e.File)] {
			return true
		}
	}
	killer, _, _ := strings.Cut(m.Killer, "/")
	if !strings.HasPrefix(killer, "Test") {
		killer = "TestSimulation" // the killer of mutants that name a broken rule
	}
	for file := range r.changed {
		dir, name := path.Dir(file), path.Base(file)
		switch {
		case strings.HasPrefix(killer, "TestConformance") && dir == "conformance" && strings.HasSuffix(name, ".go"):
			return true
		case dir == p.path && strings.HasSuffix(name, "_test.go"):
			src, err := os.ReadFile(filepath.Join(r.root, filepath.FromSlash(file)))
			if err == nil && bytes.Contains(src, []byte("\nfunc "+killer+"(")) {
				return true
			}
		}
	}
	return false
}

func git(dir string, args ...string) (string, error) { return command(dir, "git", args...) }

func command(dir, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
