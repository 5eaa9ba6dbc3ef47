package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxListed limits the number of findings that Save writes. Further findings are only counted.
const maxListed = 50

// Save writes a failing history into a new directory in dir, whose name begins with name, and
// returns the new directory's path:
//
//	findings.txt     replay, and every finding with its operations
//	history.jsonl    the history, for Load
//
// The replay argument is the one-line command that repeats the run with its seed.
func Save(dir, name, replay string, h *History, found []Finding) (path string, err error) {
	if replay == "" || strings.ContainsAny(replay, "\r\n") {
		return "", errors.New("tenure: history: the command that replays a failure must be one line")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("tenure: history: %w", err)
	}
	if path, err = os.MkdirTemp(dir, name+"-"); err != nil {
		return "", fmt.Errorf("tenure: history: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "replay: %s\n%d findings in %d operations\n", replay, len(found), len(h.Operations))
	for _, f := range found[:min(len(found), maxListed)] {
		fmt.Fprintf(&b, "\n%v\n", f)
	}
	if n := len(found) - maxListed; n > 0 {
		fmt.Fprintf(&b, "\nand %d more\n", n)
	}
	errs := []error{os.WriteFile(filepath.Join(path, "findings.txt"), []byte(b.String()), 0o644)}
	errs = append(errs, writeFile(filepath.Join(path, "history.jsonl"), h))
	if err := errors.Join(errs...); err != nil {
		return path, fmt.Errorf("tenure: history: saving a failure: %w", err)
	}
	return path, nil
}

func writeFile(path string, h *History) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(h.encode(f), f.Close())
}
