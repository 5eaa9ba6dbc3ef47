package live_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
)

var (
	backendFlag = flag.String("backend", "", "backend to run the suite on: "+
		strings.Join(slices.Sorted(maps.Keys(backends())), ", "))
	dsnFlag     = flag.String("dsn", "", "where the store is; default: the environment variable TENURE_LIVE_DSN")
	optionsFlag = flag.String("options", "", "more settings of the backend, as a JSON object")
	reportFlag  = flag.String("report", "", "file to write the summary to")
	serialFlag  = flag.Bool("serial", false, "run one case after the other")
	longFlag    = flag.Bool("long", false, "look at about 20 times as many interleavings")
)

// openTimeout bounds the first opening, and removeTimeout the clean-up.
const (
	openTimeout   = 30 * time.Second
	removeTimeout = 2 * time.Minute
)

// TestLive runs the suite on the store that the flags name.
func TestLive(t *testing.T) {
	if *backendFlag == "" {
		t.Skip("no store was named: see the package comment, and add -args -backend NAME -dsn WHERE")
	}
	dsn := cmp.Or(*dsnFlag, os.Getenv("TENURE_LIVE_DSN"))
	if *backendFlag == "memory" {
		dsn = *dsnFlag
	}
	to, err := newTarget(*backendFlag, dsn, *optionsFlag)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{target: to, root: "live-" + strings.ToLower(rand.Text()[:10])}
	summary := r.do(quiet{conformance.Wrap(t), to.scrub})
	if summary == "" {
		return
	}
	if *reportFlag != "" {
		if err := os.WriteFile(*reportFlag, []byte(summary), 0o644); err != nil {
			t.Errorf("writing -report: %v", err)
		}
	}
	fmt.Print(summary)
}

// run is one run of the suite, and the namespaces that it has made.
type run struct {
	*target
	root string

	mu         sync.Mutex
	namespaces []string
}

// do runs the suite, removes its records, and returns the summary.
func (r *run) do(t conformance.T) string {
	t.Helper()
	defer r.clean(t) // also when the suite ends this goroutine
	start := time.Now()
	info, err := r.first(t.Context())
	if err != nil {
		t.Fatalf("cannot open %s at %s: %v", r.backend, r.where, err)
	}
	report := conformance.Run(t, conformance.Harness{
		Name: r.backend, New: r.store, Serial: *serialFlag, Long: *longFlag,
	})
	elapsed := time.Since(start)
	what, left := r.clean(t)
	l := info.Limits
	return r.scrub(fmt.Sprintf(`
%s at %s
  namespace  %s/..., one for each case
  limits     %d items per call, %d operations and %d bytes per write, %s, TTL from %v
  time       %v
  removed    %s
  left       %s
%v
`, r.backend, r.where, r.root, l.BatchItems, l.WriteOps, l.WriteBytes, promptness(l.PollPeriod), l.MinTTL, elapsed.Round(time.Millisecond), what, left, report))
}

func promptness(poll time.Duration) string {
	if poll == 0 {
		return "changes are pushed"
	}
	return fmt.Sprintf("changes are polled every %v", poll)
}

// first opens once, so that a store out of reach fails the run and not every case.
func (r *run) first(ctx context.Context) (driver.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	b, err := r.open(ctx, r.name("/first"), true)
	if err != nil {
		return driver.Info{}, err
	}
	return b.Info(), b.Close()
}

// name is a namespace of this run, to be removed.
func (r *run) name(suffix string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ns := r.root + suffix
	if !slices.Contains(r.namespaces, ns) {
		r.namespaces = append(r.namespaces, ns)
	}
	return ns
}

// store makes a namespace for one case. Faults are not this package's to cause.
func (r *run) store(conformance.T) *conformance.Store {
	r.mu.Lock()
	suffix := fmt.Sprintf("/case%d", len(r.namespaces))
	r.mu.Unlock()
	suffix += "-" + strings.ToLower(rand.Text()[:6])
	return &conformance.Store{
		Open: func(ctx context.Context) (driver.Backend, error) { return r.open(ctx, r.name(suffix), true) },
		OpenExisting: func(ctx context.Context) (driver.Backend, error) {
			return r.open(ctx, r.name(suffix), false)
		},
		OpenNamespace: func(ctx context.Context, more string) (driver.Backend, error) {
			return r.open(ctx, r.name(suffix+more), true)
		},
	}
}

// clean removes the namespaces, and describes the removed and the remaining
// records. A refusal is no failure: a role need not have the right to delete.
func (r *run) clean(t conformance.T) (what, left string) {
	t.Helper()
	r.mu.Lock()
	namespaces := r.namespaces
	r.namespaces = nil
	r.mu.Unlock()
	if len(namespaces) == 0 {
		return "", r.left
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), removeTimeout)
	defer cancel()
	what, err := r.remove(ctx, namespaces)
	if err != nil {
		left = fmt.Sprintf("%s, and records of the namespaces %s/...: %v", r.left, r.root, err)
		t.Logf("left: %s", left)
		return what, left
	}
	return what, r.left
}

// scrub cuts secrets out of the output.
func (t *target) scrub(text string) string {
	for _, s := range t.secrets {
		text = strings.ReplaceAll(text, s, "xxxxx")
	}
	return text
}

// quiet is a T whose messages are scrubbed.
type quiet struct {
	conformance.T
	scrub func(string) string
}

func (q quiet) say(f func(string, ...any), format string, args []any) {
	q.T.Helper()
	f("%s", q.scrub(fmt.Sprintf(format, args...)))
}

func (q quiet) Logf(format string, args ...any)   { q.T.Helper(); q.say(q.T.Logf, format, args) }
func (q quiet) Errorf(format string, args ...any) { q.T.Helper(); q.say(q.T.Errorf, format, args) }
func (q quiet) Fatalf(format string, args ...any) { q.T.Helper(); q.say(q.T.Fatalf, format, args) }
func (q quiet) Skipf(format string, args ...any)  { q.T.Helper(); q.say(q.T.Skipf, format, args) }

func (q quiet) Run(name string, f func(conformance.T)) bool {
	return q.T.Run(name, func(t conformance.T) { f(quiet{t, q.scrub}) })
}
