package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/certify"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// The certify command starts this program without arguments to run members of the system suite.
// With arguments, the environment cannot turn a command into a member.
func member() (code int, is bool) {
	if len(os.Args) != 1 {
		return 0, false
	}
	return certify.Member(openers()...)
}

func (a *app) certifyCommand() *cobra.Command {
	var o certify.Options
	var only []string
	var dir, cases string
	c := &cobra.Command{Use: "certify", Short: "Test the store with the conformance suite and with real processes under faults",
		Long: `Test the store with the conformance suite and with real processes under faults.

It works in a new namespace with a random name, inside the configured one, which must exist,
and removes its records afterwards. It loads the store for some minutes. Its processes are
killed and stopped; the store itself is left alone.

Exit code 0: no rule was broken. 9: a rule was broken. 10: the run proves nothing, as the same
processes without the fence did no damage, no case passed, or a phase was not played to its
end. Any other:
nothing was judged.`,
		Args: args(), RunE: func(cmd *cobra.Command, _ []string) error {
			for _, p := range only {
				if !slices.Contains(certify.Phases(), certify.Phase(p)) {
					return usage(fmt.Sprintf("--only %s: use one or more of %v", quoted(p), certify.Phases()))
				}
				o.Only = append(o.Only, certify.Phase(p))
			}
			if cases != "" {
				var err error
				if o.Cases, err = regexp.Compile(cases); err != nil {
					return usage(fmt.Sprintf("--cases: %v", err))
				}
				if !slices.ContainsFunc(certify.Cases(), func(c suite.Case) bool { return o.Cases.MatchString(c.Name) }) {
					return usage(fmt.Sprintf("--cases %s matches no case: docs/internals/conformance.md lists their names", quoted(cases)))
				}
			}
			return a.certify(cmd.Context(), o, dir)
		}}
	f := c.Flags()
	f.StringVar(&dir, "report", "", "folder to write certify.md and certify.json into; only an earlier report is replaced")
	f.IntVar(&o.Seeds, "seeds", 5, "runs of the system suite")
	f.Uint64Var(&o.First, "first-seed", 1, "the first seed, to play a failure again")
	f.IntVar(&o.ControlSeeds, "control-seeds", 3, "runs of the control without the fence")
	f.IntVar(&o.Steps, "steps", 10, "faults in each run, at least 4")
	f.DurationVar(&o.TTL, "ttl", 0, "TTL of the members (default 500ms, or more where the store answers slowly)")
	f.BoolVar(&o.Long, "long", false, "about 20 times as many interleavings in the conformance suite")
	f.BoolVar(&o.Serial, "serial", false, "one case of the conformance suite after the other, for a store that others use")
	f.StringVar(&cases, "cases", "", "regular expression: of the conformance suite only the cases whose names it matches")
	f.StringSliceVar(&o.Doors, "door", nil,
		"host:port of another node of the store's cluster, through which every second process of the suite goes")
	f.StringSliceVar(&only, "only", nil, "phases to run: conformance, system, control (default all)")
	return c
}

const (
	maxSeeds   = 10_000
	maxSteps   = 1000
	longestTTL = time.Minute
)

func (a *app) certify(ctx context.Context, o certify.Options, dir string) error {
	switch {
	case o.Seeds < 1 || o.Seeds > maxSeeds || o.ControlSeeds < 1 || o.ControlSeeds > maxSeeds || o.First < 1:
		return usage(fmt.Sprintf("--seeds, --control-seeds: use 1 to %d, and --first-seed 1 or more", maxSeeds))
	case o.Steps < 4 || o.Steps > maxSteps:
		return usage(fmt.Sprintf("--steps %d is outside 4 to %d", o.Steps, maxSteps))
	case o.TTL != 0 && (o.TTL < 100*time.Millisecond || o.TTL > longestTTL):
		return usage(fmt.Sprintf("--ttl %v is outside 100ms to %v", o.TTL, longestTTL))
	}
	a.hasty = true
	var err error
	if o.Opener, o.Settings, err = a.chosen(ctx); err != nil {
		return err
	}
	if dir != "" {
		if o.Folder, err = certify.OpenFolder(dir); err != nil {
			return err
		}
		defer o.Folder.Close() //nolint:errcheck // the folder's files have been written
	}
	b := built(debug.ReadBuildInfo())
	o.Tenure = certify.Build{Version: b.Version, Commit: b.Commit, Modified: b.Modified}
	o.Open = a.open
	var mu sync.Mutex
	o.Progress = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintln(a.errs, line)
	}
	r, err := certify.Run(ctx, o)
	if r == nil {
		return advised(err, o.Opener.Name)
	}
	if printed := a.print(r, certifyTable(r)); printed != nil || err != nil {
		return cmp.Or(advised(err, o.Opener.Name), printed)
	}
	switch why := strings.Join(r.Why, ", "); r.Verdict {
	case certify.Held:
		return nil
	case certify.Broken:
		return exit(exitBroken, "the store broke rules: "+why)
	default:
		return exit(exitUnproven, "the run proves nothing: "+why)
	}
}

// chosen returns the configured backend's opener and settings, but opens nothing.
func (a *app) chosen(ctx context.Context) (core.Opener, any, error) {
	if err := a.load(); err != nil {
		return core.Opener{}, nil, err
	}
	var opener core.Opener
	var settings reflect.Value
	list := openers()
	for i, o := range list {
		list[i].Open = func(_ context.Context, decode func(any) error) (core.Backend, error) {
			into := reflect.New(reflect.TypeOf(o.Settings))
			if err := decode(into.Interface()); err != nil {
				return nil, err
			}
			opener, settings = o, into.Elem()
			return nil, errors.New("chosen")
		}
	}
	_, err := a.conf.Open(ctx, append(list, foreign(a.conf, list)...)...)
	if !settings.IsValid() {
		return opener, nil, err
	}
	return opener, settings.Interface(), nil
}

func certifyTable(r *certify.Report) *table {
	const mostFindings = 20
	t := &table{head: []string{"PHASE", "RESULT", "FIGURES"}}
	for _, l := range r.Lines() {
		t.add(l.Phase, l.Result, l.Figures)
	}
	for _, f := range r.Findings[:min(len(r.Findings), mostFindings)] {
		message := []rune(strings.Join(strings.Fields(f.Message), " "))
		if len(message) > maxLine {
			message = append(message[:maxLine], []rune("...")...)
		}
		t.add(f.Phase, cmp.Or(f.Rule, "not judged"), f.Check+": "+string(message))
	}
	if more := len(r.Findings) - mostFindings; more > 0 {
		t.add("", "", fmt.Sprintf("%d more findings", more))
	}
	t.add("records", "removed", r.Removed+"; left: "+r.Left)
	t.add("skipped", len(r.Skipped), "the report lists them with the reasons")
	t.add("verdict", r.Verdict, strings.Join(r.Why, ", "))
	return t
}
