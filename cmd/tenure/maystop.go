package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/operator"
)

// The may-stop command waits for the heartbeats of members with a TTL of up to mostWatched. Waiting
// for longer TTLs would let the record of a dead member delay every answer.
const mostWatched = time.Minute

type stopping struct {
	question operator.Question
	done     bool
}

func (a *app) mayStopCommand() *cobra.Command {
	s := &stopping{}
	c := &cobra.Command{Use: "may-stop NODE", Short: "Ask whether a node may be stopped now, and reserve a place for it",
		Long: `Ask whether a node may be stopped now, and reserve a place for it.

A number of nodes (--away) may be away at a time: those that hold a place, and those whose
members all drain, leave, are not eligible or make no heartbeat for their TTL. With --members those count
as well that are fewer. While there is room the node gets a place, until --for is over, a new
session of the node has joined, or --done is given. A node that asks again keeps its place, and
the place then lasts for at least --for. Each node's own --away holds while it has a place: the
least one counts.

Exit code 0: the node may be stopped, and has a place. 8: it may not, for the reason shown.
Any other: there is no answer, so do not stop it.`,
		Args: args("NODE"), RunE: func(cmd *cobra.Command, args []string) error {
			s.question.Node = args[0]
			return a.mayStop(cmd, s)
		}}
	q, f := &s.question, c.Flags()
	f.IntVar(&q.Away, "away", operator.DefaultAway, "nodes that may be away at a time, this one included")
	f.IntVar(&q.Members, "members", 0, "nodes that should run; those that are missing count as away; 0: not known")
	f.DurationVar(&q.For, "for", operator.DefaultFor, fmt.Sprintf("how long the place lasts, up to %v", operator.MaxFor))
	f.BoolVar(&s.done, "done", false, "the node is back, or is not stopped: end its place")
	f.BoolVar(&q.Look, "dry-run", false, "only answer, without a place")
	f.StringVar(&q.Reason, "reason", "", "why, for those who list the rules")
	f.StringVar(&q.Author, "author", "", "who asks; the user and host that write it are kept beside")
	return c
}

func (a *app) mayStop(cmd *cobra.Command, s *stopping) error {
	q := s.question
	q.Writer = writer()
	// 0 is the default of a Question, but not a valid budget.
	if q.Away == 0 {
		return usage("--away 0 is below 1: the node itself is away while it is stopped")
	}
	if s.done && q.Look {
		return usage("--done with --dry-run: use one of them")
	}
	if q.For == 0 {
		return usage("--for 0s: give how long the node is away at most")
	}
	if err := q.Check(); err != nil {
		return err
	}
	return a.with(cmd, func(ctx context.Context, b core.Backend) error {
		if s.done {
			had, err := a.writer(b).Done(ctx, q.Node, q.Writer)
			if err != nil {
				return err
			}
			text := "the place of node " + q.Node + " has ended"
			if !had {
				text = "node " + q.Node + " held no place"
			}
			_, _ = fmt.Fprintln(a.errs, text)
			return nil
		}
		seen, err := a.heartbeats(ctx, b, mostWatched)
		if err != nil {
			return err
		}
		for session, at := range seen {
			if at.IsZero() {
				q.Silent = append(q.Silent, session)
			}
		}
		if q.Aside, err = a.aside(ctx, b); err != nil && !damaged(err) {
			return err
		}
		answer, err := a.writer(b).Ask(ctx, q)
		if err != nil {
			return err
		}
		if err := a.print(answer, answerTable(answer)); err != nil || answer.May {
			return err
		}
		return exit(exitMayNot, fmt.Sprintf("node %s may not be stopped now: %s", q.Node, answer.Reason))
	})
}

func answerTable(a *operator.Answer) *table {
	t := &table{}
	may := "no"
	if a.May {
		may = "yes"
	}
	t.add("may stop", may)
	t.add("node", a.Node)
	if !a.Until.IsZero() {
		t.add("its place ends", a.Until.Local().Format(time.DateTime))
	}
	t.add("may be away", a.Budget)
	t.add("others away", a.AwayTotal+a.Missing)
	t.add("others up", a.Up)
	t.add("shards without an owner", a.Unowned)
	for _, g := range a.Away {
		why := g.Why
		if !g.Until.IsZero() {
			why += " until " + g.Until.Local().Format(time.DateTime)
		}
		t.add("away", g.Node+": "+why)
	}
	if more := a.AwayTotal - len(a.Away); more > 0 {
		t.add("away", fmt.Sprintf("%d more", more))
	}
	if a.Missing > 0 {
		t.add("missing", a.Missing)
	}
	return t
}
