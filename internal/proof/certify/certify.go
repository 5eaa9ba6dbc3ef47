package certify

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/suite"
	"github.com/tenure-go/tenure/internal/proof/system"
	"github.com/tenure-go/tenure/internal/seam"
)

// Phase is a part of the run.
type Phase string

// The phases, in order. Each run begins by opening the store.
const (
	Opening     Phase = "opening"
	Conformance Phase = "conformance"
	System      Phase = "system"
	Control     Phase = "control"
)

// Phases returns the phases that the caller of Run can choose.
func Phases() []Phase { return []Phase{Conformance, System, Control} }

// Options configures Run. Opener and Settings are required.
type Options struct {
	// Opener opens the backend in this process and in the members. Pass Opener to Member, too.
	Opener driver.Opener
	// Settings is the opener's settings struct, with the configured namespace.
	Settings any
	// Open opens the configured namespace, which must exist. If Open is nil, Opener opens the
	// namespace.
	Open func(ctx context.Context) (driver.Backend, error)

	RunOptions
	// Doors are other addresses of the same store, such as those of other nodes of its cluster.
	// Every second process of a case uses these addresses. If Doors is empty and several addresses
	// are configured, Run uses the configured ones in reverse order.
	Doors []string
	// Cases selects cases of the conformance suite. If Cases is nil, Run runs all cases and
	// measures the store.
	Cases *regexp.Regexp

	// Tenure is the running version.
	Tenure Build
	// Folder receives the report and the histories of failures. If Folder is nil, Run writes no
	// files.
	Folder *Folder
	// Progress, if not nil, receives a line of text at some steps. Several goroutines may call
	// Progress.
	Progress func(line string)
}

// RunOptions are the options that the report shows.
type RunOptions struct {
	Only         []Phase       `json:"only"`          // default: all
	Seeds        int           `json:"seeds"`         // of the system suite. Default 5
	First        uint64        `json:"first_seed"`    // default 1
	ControlSeeds int           `json:"control_seeds"` // default 3
	Steps        int           `json:"steps"`         // faults of a run of the system suite. Default 10, at least 4
	TTL          time.Duration `json:"ttl"`           // of the members. Default: by round trip and limits, at least 500 ms
	Long         bool          `json:"long"`          // of the conformance suite
	Serial       bool          `json:"serial"`        // of the conformance suite
}

const (
	openLimit   = 30 * time.Second // the first opening
	removeLimit = 2 * time.Minute  // removing the records
	stopLimit   = 15 * time.Second // ending a phase that was interrupted
	hurryLimit  = 20 * time.Second // removing the records after an interrupted phase
	askLimit    = 10 * time.Second // one question to the store
	leastTTL    = 500 * time.Millisecond
	trips       = 9
	parallel    = 4 // concurrent cases; each case has several connections, and PostgreSQL allows only 100
)

// Member reports whether Run has started this process as a member. If so, Member runs the member to
// its end, and returns the exit status. A program must call Member first.
func Member(openers ...driver.Opener) (code int, is bool) { return system.Member(openers...) }

// Run certifies a store. Run opens the store, and runs the conformance suite, the system suite, and
// the control without the fence. Run then removes its records, even if ctx has ended. Unless ctx
// has ended, Run writes the report into o.Folder. Run returns an error if the store could not be
// opened, if ctx ended, or if the report was not written. If there is no error, Report.Verdict is
// the result. Errors and reports contain no secrets from the settings.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.Seeds, o.ControlSeeds, o.Steps = cmp.Or(o.Seeds, 5), cmp.Or(o.ControlSeeds, 3), cmp.Or(o.Steps, 10)
	o.First = cmp.Or(o.First, 1)
	if len(o.Only) == 0 {
		o.Only = Phases()
	}
	s := settingsOf(o.Settings)
	t, err := newTarget(o.Opener.Name, s)
	scrub := scrubber(s.secrets())
	if err != nil {
		return nil, scrubbed(err, scrub)
	}
	r := &run{Options: o, settings: s, target: t, scrub: scrubber(append(s.secrets(), t.secrets...)),
		root: beneath(s.text("namespace", ""))}
	r.report = newReport(&o, t, s, r.root)
	switch {
	case len(o.Doors) > 0 && t.through == nil:
		return nil, fmt.Errorf("tenure: %w: another address cannot be used: %s", driver.ErrInvalid, t.uncut)
	case len(o.Doors) == 0 && len(t.addrs) > 1:
		r.Doors = slices.Clone(t.addrs)
		slices.Reverse(r.Doors)
	}
	removed, left, err := r.all(ctx)
	if ctx.Err() != nil { // a phase may still use the report
		return nil, fmt.Errorf("interrupted: removed %s; left: %s: %w", removed, left, ctx.Err())
	}
	r.report.Removed, r.report.Left = removed, left
	r.report.judge(err)
	r.report.scrub(r.scrub)
	if o.Folder != nil {
		if err := o.Folder.write(r.report); err != nil {
			return r.report, err
		}
	}
	return r.report, scrubbed(err, r.scrub)
}

// scrubbed returns an error that matches the same errors as err, but has a text without secrets.
func scrubbed(err error, scrub func(string) string) error {
	if err == nil || scrub(err.Error()) == err.Error() {
		return err
	}
	return &scrubbedError{scrub(err.Error()), err}
}

type scrubbedError struct {
	text string
	err  error
}

func (e *scrubbedError) Error() string { return e.text }
func (e *scrubbedError) Unwrap() error { return e.err }

// beneath returns a new namespace inside the given namespace. If the name would be too long, the
// new namespace is next to the given one.
func beneath(namespace string) string {
	root := "certify-" + strings.ToLower(rand.Text()[:10])
	for parts := strings.Split(namespace, "/"); len(parts) > 0; parts = parts[:len(parts)-1] {
		inside := strings.Join(parts, "/") + "/" + root
		if driver.CheckNamespace(inside+"/case/a/b") == nil {
			return inside
		}
	}
	return root
}

// run is the state of a call to Run, including the namespaces that the call has created.
type run struct {
	Options
	*target
	settings settings
	scrub    func(string) string
	root     string
	report   *Report

	mu         sync.Mutex
	namespaces []string
}

// say reports progress. The arguments must not contain secrets.
func (r *run) say(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

// The method runs all phases and removes their records. If ctx ends, it gives the phases a limited
// time to finish. The members end no later than this process.
func (r *run) all(ctx context.Context) (removed, left string, err error) {
	done := make(chan error, 1)
	go func() { done <- r.phases(ctx) }()
	limit := removeLimit
	select {
	case err = <-done:
	case <-ctx.Done():
		r.say("interrupted: ending the phase")
		limit = hurryLimit
		select {
		case err = <-done:
		case <-time.After(stopLimit):
			err = fmt.Errorf("the phase did not end within %v", stopLimit)
		}
	}
	if len(r.made()) > 0 {
		r.say("removing records")
	}
	removed, left = r.clean(context.WithoutCancel(ctx), limit)
	return removed, left, err
}

func (r *run) phases(ctx context.Context) error {
	if err := r.opening(ctx); err != nil {
		return err
	}
	r.say("opened: %s at %s", r.Opener.Name, r.where)
	for _, phase := range Phases() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !slices.Contains(r.Only, phase) {
			r.report.skip(string(phase), notChosen)
			continue
		}
		began := time.Now()
		switch phase {
		case Conformance:
			r.conformance(ctx)
		case System, Control:
			if why := system.Supported(); why != "" {
				r.report.skip(string(phase), why)
				continue
			}
			r.system(ctx, phase == Control)
		default: // the opening was done before
		}
		r.report.Took[phase] = time.Since(began).Round(time.Millisecond).String()
	}
	return nil
}

// opening opens the configured namespace, and then the first namespace of this run.
func (r *run) opening(ctx context.Context) error {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	open := r.Open
	if open == nil {
		open = func(ctx context.Context) (driver.Backend, error) {
			return r.settings.in(r.settings.text("namespace", ""), false).open(ctx, r.Opener)
		}
	}
	b, err := open(limited)
	if err != nil {
		return err
	}
	r.look(ctx, b)
	if err := b.Close(); err != nil {
		return err
	}
	first, err := r.settings.in(r.name("/first"), true).open(limited, r.Opener)
	if err != nil {
		return fmt.Errorf("open the namespace %s, below which the run works: %w", r.root, err)
	}
	r.report.Took[Opening] = time.Since(began).Round(time.Millisecond).String()
	return first.Close()
}

// look records what a backend reports about itself and its store.
func (r *run) look(ctx context.Context, b driver.Backend) {
	info, o := b.Info(), &r.report.Opening
	o.Limits, o.Rollback = info.Limits, info.Rollback
	var took []time.Duration
	for range trips {
		began := time.Now()
		if _, err := ask(ctx, func(ctx context.Context) (*driver.Item, error) { return b.Get(ctx, driver.PingShard, "0") }); err == nil {
			took = append(took, time.Since(began))
		}
	}
	slices.Sort(took)
	if len(took) > 0 {
		o.RoundTrip, o.Slowest = took[len(took)/2], took[len(took)-1]
	}
	if r.TTL == 0 {
		r.TTL = max(leastTTL, info.Limits.MinTTL, (50 * o.RoundTrip).Round(100*time.Millisecond))
	}
	r.report.Options.TTL = r.TTL
	if x, ok := b.(driver.Examiner); ok {
		found, err := ask(ctx, x.Examine)
		if err != nil {
			r.report.skip("settings and rights of the store", r.scrub(err.Error()))
		}
		o.Findings = found
	} else {
		r.report.skip("settings and rights of the store", "the backend does not tell them")
	}
	version, err := ask(ctx, r.version)
	if err != nil {
		r.report.skip("version of the store", r.scrub(err.Error()))
		return
	}
	r.report.Store.Version = version
}

// ask limits the time of one query to the store.
func ask[T any](ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return question(ctx)
}

// Cases returns every case of the conformance suite.
func Cases() []suite.Case { return conformance.Harness{}.Internal(seam.Key{}).Cases() }

func (r *run) conformance(ctx context.Context) {
	cases := len(Cases())
	var mu sync.Mutex
	var said time.Time
	count := 0
	t := suite.NewRunner(parallel, func(name string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Count(name, "/") != 2 {
			return // a group
		}
		if count++; time.Since(said) > 5*time.Second {
			said = time.Now()
			r.say("conformance: %d of %d cases", count, cases)
		}
	}, r.scrub)
	h := conformance.Harness{Name: r.Opener.Name, Version: r.report.Store.Version, New: r.store, Serial: r.Serial, Long: r.Long}
	if r.Cases != nil {
		h.Skip = map[string]string{}
		for _, c := range Cases() {
			if !r.Cases.MatchString(c.Name) {
				h.Skip[c.Name] = notChosen
				cases--
			}
		}
	}
	r.say("conformance: %d cases", cases)
	var report *suite.Report
	errs := t.Do(ctx, "suite", func(t conformance.T) { report = h.Internal(seam.Key{}).Run(t, r.Cases == nil) })
	r.report.took(report, errs)
	if len(r.Doors) == 0 {
		r.report.skip("the conformance suite across two doors of the store", "one address is configured: --door names another one")
	}
}

// name returns a namespace of this run, and records it for removal.
func (r *run) name(suffix string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ns := r.root + suffix
	if !slices.Contains(r.namespaces, ns) {
		r.namespaces = append(r.namespaces, ns)
	}
	return ns
}

// These are the namespaces that may contain records.
func (r *run) made() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.namespaces)
}

// store creates a namespace for one case. If a proxy is possible, the Store also has network
// faults.
func (r *run) store(t conformance.T) *conformance.Store {
	suffix := "/case-" + strings.ToLower(rand.Text()[:10])
	open := func(more string, create bool) func(context.Context) (driver.Backend, error) {
		return func(ctx context.Context) (driver.Backend, error) {
			return r.settings.in(r.name(suffix+more), create).open(ctx, r.Opener)
		}
	}
	s := &conformance.Store{
		Open: open("", true), OpenExisting: open("", false),
		OpenNamespace: func(ctx context.Context, more string) (driver.Backend, error) { return open(more, true)(ctx) },
	}
	if r.through == nil {
		return s
	}
	if len(r.Doors) > 0 {
		s.OpenOther = func(ctx context.Context) (driver.Backend, error) {
			return r.target.through(r.Doors).in(r.name(suffix), true).open(ctx, r.Opener)
		}
	}
	several := func(ctx context.Context) (driver.Backend, []*conformance.Wire, error) {
		var addrs []string
		var wires []*conformance.Wire
		for _, addr := range r.addrs {
			through, wire := conformance.Proxy(t, addr)
			addrs, wires = append(addrs, through), append(wires, wire)
		}
		b, err := r.target.through(addrs).in(r.name(suffix), true).open(ctx, r.Opener)
		return b, wires, err
	}
	if len(r.addrs) > 1 {
		s.OpenSeveral = several
		return s
	}
	s.OpenFaulty = func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
		b, wires, err := several(ctx)
		return b, wires[0], err
	}
	return s
}

// clean removes the namespaces, and describes the removed and the remaining records. A refusal is
// not a failure, because a role may lack permission to delete.
func (r *run) clean(ctx context.Context, limit time.Duration) (removed, left string) {
	namespaces := r.made()
	if len(namespaces) == 0 {
		return "nothing", "nothing"
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type outcome struct {
		what string
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		what, err := r.remove(ctx, r.root, namespaces)
		done <- outcome{what, err}
	}()
	var o outcome
	select {
	case o = <-done:
	case <-time.After(limit + time.Second): // a client that ignores its context
		o = outcome{"an unknown number of records", errors.New("removing them took too long")}
	}
	removed, left = cmp.Or(o.what, "nothing"), r.left
	if o.err != nil {
		left = strings.TrimPrefix(fmt.Sprintf("%s, and records of the namespaces %s/...: %s", left, r.root, r.scrub(o.err.Error())), ", and ")
		r.say("left: %s", left)
	}
	return removed, left
}
