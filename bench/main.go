package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := func() error { return command(ctx, os.Args[1:], os.Stdout) }
	if os.Getenv(memberVariable) != "" {
		do = func() error { return memberProcess(ctx) }
	}
	if err := do(); err != nil {
		stop()
		log.Fatal("bench: ", err)
	}
}

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	storesFlag := flags.String("stores", "", "stores, separated by commas; default: all")
	rowsFlag := flags.String("rows", "", "rows, separated by commas; default: all; help lists them")
	rounds := flags.Int("rounds", 5, "rounds of each row that count")
	quick := flags.Bool("quick", false, "small sizes and one round, to see that all works")
	update := flags.String("update", "", "the document to write the results to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rowsFlag == "help" {
		for _, w := range rows() {
			if _, err := fmt.Fprintf(out, "%-16s %s\n", w.name, w.title); err != nil {
				return err
			}
		}
		return nil
	}
	p := &plan{rounds: max(1, *rounds), quick: *quick, log: os.Stderr}
	if *quick {
		p.rounds = 1
	}
	var err error
	if p.stores, err = chosen(stores(), *storesFlag, func(s *store) string { return s.name }); err != nil {
		return err
	}
	if p.rows, err = chosen(rows(), *rowsFlag, func(w row) string { return w.name }); err != nil {
		return err
	}
	m := look(ctx)
	r, err := p.run(ctx)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	m.describe(&text, strings.Join(append([]string{"go run ."}, args...), " "))
	fmt.Fprintln(&text)
	r.tables(&text, p)
	if _, err := out.Write(text.Bytes()); err != nil {
		return err
	}
	if *update == "" {
		return nil
	}
	return r.publish(p, *update, text.Bytes())
}

// An empty list selects all elements.
func chosen[T any](all []T, list string, name func(T) string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	var some []T
	for n := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(e T) bool { return name(e) == n })
		if i < 0 {
			return nil, fmt.Errorf("there is no %q: see go doc", n)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// The results are between these lines in the document.
const (
	beginMark = "<!-- begin results: written by bench -->\n"
	endMark   = "<!-- end results -->\n"
)

// Each chart has a title, and a name to which rows refer.
func charts() [][2]string {
	return [][2]string{
		{"acquire", "Time to acquire, in ms"},
		{"takeover", "Takeover after SIGKILL, in TTLs of its own"},
		{"moves", "Planned moves: until the next owner's first write, in ms"},
		{"append", "Appended entries a second"},
		{"idle", "Calls a second of two idle processes"},
		{"standby", "Memory for each shard that another owns, in bytes"},
		{"follower", "How far a follower is behind, in ms"},
		{"lock", "Locks, in ms"},
		{"locks", "Locks that were locked and unlocked, a second"},
	}
}

// publish inserts the text into the document, and writes a chart for each kind of row to the
// adjacent folder.
func (r *results) publish(p *plan, path string, text []byte) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	dir := strings.TrimSuffix(path, filepath.Ext(path))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var pictures bytes.Buffer
	for _, c := range charts() {
		points := r.points(p, c[0])
		if len(points) == 0 {
			continue
		}
		var svg bytes.Buffer
		if err := chart(&svg, c[1], points); err != nil {
			return err
		}
		name := c[0] + ".svg"
		if err := os.WriteFile(filepath.Join(dir, name), svg.Bytes(), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&pictures, "![%s](%s/%s)\n\n", c[1], filepath.Base(dir), name)
	}
	updated, err := between(old, append(text, pictures.Bytes()...))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, updated, 0o644)
}

func between(document, text []byte) ([]byte, error) {
	before, rest, begun := bytes.Cut(document, []byte(beginMark))
	_, after, ended := bytes.Cut(rest, []byte(endMark))
	if !begun || !ended {
		return nil, fmt.Errorf("it lacks the lines %q and %q", beginMark, endMark)
	}
	return slices.Concat(before, []byte(beginMark), []byte("\n"), text, []byte(endMark), after), nil
}
