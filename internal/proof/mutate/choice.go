package mutate

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Choice says which mutants are tried: without the flag none, since they take minutes; with
// -mutants all; with -mutants=COMMIT those whose killing may differ from what it was at that
// commit, where all died; with -mutants= a sample.
type Choice struct {
	on bool
	// Folders below which something has changed since the commit; nil for all mutants.
	changed map[string]bool
	root    string
	sample  string // the commit that chooses the sample; empty for no sample
}

// A sample has one in sampled of the mutants. All of them take half an hour, which CI has not; the
// commit chooses the sample, so that each mutant is tried after some commits.
const sampled = 4

// Flag defines the flag -mutants of the test binary.
func Flag() *Choice {
	c := new(Choice)
	flag.Var(c, "mutants", "try mutants, which takes minutes: all; with =`commit` those of folders that have changed since; with = a sample")
	return c
}

// IsBoolFlag lets the flag stand without a commit.
func (c *Choice) IsBoolFlag() bool { return true }

// String is what the flag was set to, in part.
func (c *Choice) String() string { return strconv.FormatBool(c.on) }

// Set takes true, false, or a commit; the empty one stands for a commit that is not known.
func (c *Choice) Set(s string) error {
	*c = Choice{on: s != "false"}
	switch s {
	case "true", "false":
		return nil
	case "":
		head, err := git("rev-parse", "HEAD")
		c.sample = head
		return err
	}
	root, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	names, err := git("-C", strings.TrimSpace(root), "diff", "--name-only", "--end-of-options", s)
	if err != nil {
		return err
	}
	c.root, c.changed = strings.TrimSpace(root), map[string]bool{}
	for name := range strings.Lines(names) {
		// Nothing of a page is compiled.
		if name = strings.TrimSpace(name); !strings.HasSuffix(name, ".md") {
			c.changed[filepath.Join(c.root, filepath.Dir(name))] = true
		}
	}
	return nil
}

// On reports whether mutants are asked for.
func (c *Choice) On() bool { return c.on }

// Touched reports whether a mutant is to be tried: the folder of the test, where its killer
// is, has changed, or one whose code it edits, or the suite if that kills it. Of a sample it
// reports whether the mutant is in it.
func (c *Choice) Touched(killer string, edits []Edit) bool {
	switch {
	case !c.on:
		return false
	case c.sample != "":
		sum := sha256.Sum256(fmt.Append(nil, c.sample, edits))
		return sum[0]%sampled == 0
	case c.changed == nil:
		return true
	}
	folders := []string{"."}
	if strings.HasPrefix(killer, "TestConformance") {
		folders = append(folders, filepath.Join(c.root, "conformance"))
	}
	for _, e := range edits {
		folders = append(folders, filepath.Dir(e.File))
	}
	for _, f := range folders {
		if f, err := filepath.Abs(f); err != nil || c.changed[f] {
			return true
		}
	}
	return false
}

func git(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return string(out), nil
}
