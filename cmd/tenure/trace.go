package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/internal/trace"
)

// maxClockError limits --clock-error. A larger value would hide overlaps between leases whose times
// come from different members' clocks.
const maxClockError = time.Minute

// The check command reads trace files but no configuration.
func (a *app) traceCommand() *cobra.Command {
	var clockError time.Duration
	var svg string
	cmd := &cobra.Command{Use: "check FILE...", Short: "Check traces of members against the rules",
		Long: `Check traces of members, which they write with trace_dir, against the rules.

It compares each step of each member with what the rules say, and the members with each other:
leases that overlap, tokens granted twice, evictions of members that were not silent, commits
acknowledged twice or under an older token. A directory stands for the traces in it. All files are
of one namespace. What a missing member or file did is not compared. A file that cannot be read is
listed, and the others are checked.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("tenure check takes the files of traces, or directories with them: see tenure check --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if clockError < 0 || clockError > maxClockError {
				return usage(fmt.Sprintf("--clock-error %v is outside 0 to %v", clockError, maxClockError))
			}
			return a.checkTraces(cmd.Context(), args, clockError, svg)
		}}
	cmd.Flags().DurationVar(&clockError, "clock-error", trace.DefaultClockError, "how far the members' wall clocks may be apart")
	cmd.Flags().StringVar(&svg, "svg", "", "file to make, with a diagram of the first breach")
	return cmd
}

func traceFiles(args []string) ([]trace.Source, error) {
	var all []trace.Source
	for _, arg := range args {
		st, err := os.Stat(arg)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, notFound(fmt.Sprintf("there is no file %s", quoted(arg)))
		case err != nil:
			return nil, err
		case !st.IsDir():
			all = append(all, trace.File(arg))
			continue
		}
		files, err := trace.FilesIn(arg)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, notFound(fmt.Sprintf("directory %s has no file that ends in %s", quoted(arg), trace.Suffix))
		}
		all = append(all, files...)
	}
	return all, nil
}

func (a *app) checkTraces(ctx context.Context, args []string, clockError time.Duration, svg string) error {
	files, err := traceFiles(args)
	if err != nil {
		return err
	}
	r, err := trace.Check(ctx, files, clockError)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return usage(err.Error())
	}
	t := &table{head: []string{"NODE", "FROM", "TO", "STEPS", "COMPARED", "LEASES", "COMMITS", "NOTES"}}
	for _, run := range r.Runs {
		t.add(run.Node, run.From.Local().Format(time.DateTime), run.To.Local().Format(time.DateTime), run.Steps, run.Replayed, run.Leases,
			run.Commits, strings.Join(run.Notes, "; "))
	}
	t.add("all", "", "", r.Steps, r.Replayed, r.Leases, r.Commits, counted(r.Evictions, "eviction"))
	for _, b := range r.Breaches {
		t.add("BREACH", b.Time.Local().Format(time.DateTime), b.Rule, "", "", "", "", b.Text)
	}
	for _, file := range r.Unread {
		t.add("UNREAD", "", "", "", "", "", "", file)
	}
	switch err := a.print(r, t); {
	case err != nil:
		return err
	case len(r.Breaches) == 0 && len(r.Unread) == 0:
		return nil
	case len(r.Breaches) == 0:
		return usage(fmt.Sprintf("no breach in what was checked; unread files: %d, such as %s", len(r.Unread), r.Unread[0]))
	}
	if svg != "" {
		if err := writeNew(svg, r.Diagram); err != nil {
			return err
		}
	}
	return exit(exitDamaged, fmt.Sprintf("%d breaches: keep the traces, and report them with the versions of the members and of the store",
		len(r.Breaches)+r.More))
}

// writeNew returns an error if the file already exists.
func writeNew(name string, write func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return usage(fmt.Sprintf("--svg: %v: name a file that does not exist", err))
	}
	return errors.Join(write(file), file.Close())
}
