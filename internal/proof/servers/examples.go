package servers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// RunExamples is like Run, but also supports examples that need the pool's server of the given
// kind. The examples read an environment variable. The variable contains the server's address, or
// the data source name of a database that the examples share. Because an example cannot skip
// itself, the server starts before the tests, unless the flags select no examples. If the machine
// has no such server, RunExamples skips the examples with the reason. If the environment requires
// the kind, RunExamples fails the run instead.
func (p *Pool) RunExamples(m *testing.M, kind Kind, variable string) int {
	if !flag.Parsed() {
		flag.Parse()
	}
	if !mayRunExamples(value("test.run"), value("test.list"), value("test.fuzzworker")) {
		return p.Run(m)
	}
	drop, err := p.serveExamples(kind, variable)
	code := 0
	if err != nil {
		code = skipExamples(kind, err)
		drop = func() error { return nil }
	}
	code = max(code, m.Run())
	if err := errors.Join(drop(), p.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// serveExamples starts the server and sets the variable. The returned function removes the
// examples' data, and must be called while the server runs.
func (p *Pool) serveExamples(kind Kind, variable string) (drop func() error, err error) {
	s, err := p.server(kind, nil)
	if err != nil {
		return nil, err
	}
	if kind != Postgres && kind != MariaDB {
		return func() error { return nil }, os.Setenv(variable, s.Addr())
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	d, err := s.CreateDatabase(ctx)
	if err != nil {
		return nil, err
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		return s.DropDatabase(ctx, d)
	}, os.Setenv(variable, d.Reveal())
}

// skipExamples makes the run skip the examples. The result is the exit code that fits the reason.
func skipExamples(kind Kind, reason error) int {
	skip := "^Example"
	if also := value("test.skip"); also != "" {
		skip = also + "|" + skip
	}
	if err := flag.Set("test.skip", skip); err != nil {
		reason = errors.Join(reason, err)
	}
	if errors.Is(reason, ErrUnavailable) && !Required(kind) {
		fmt.Fprintln(os.Stderr, "the examples are skipped:", reason)
		return 0
	}
	fmt.Fprintln(os.Stderr, "the examples cannot run:", reason)
	return 1
}

// onlyOthers matches values of -run that select only tests, fuzz targets or benchmarks.
var onlyOthers = regexp.MustCompile(`^\^?\(?(Test|Fuzz|Benchmark|\$)`)

// mayRunExamples reports whether the flags of package testing may select an example.
func mayRunExamples(run, list, worker string) bool {
	return list == "" && worker != "true" && (strings.Contains(run, "Example") || !onlyOthers.MatchString(run))
}

// value returns a flag's value, or "" for a missing flag.
func value(name string) string {
	f := flag.Lookup(name)
	if f == nil {
		return ""
	}
	return f.Value.String()
}
