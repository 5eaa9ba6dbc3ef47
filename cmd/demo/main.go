//go:build unix

// Command demo shows a flight board of 20,000 real departures from 220 airports. Each airport is a
// shard. Three member processes of this program divide the airports among themselves with a
// sharding.Manager. The owner of an airport continues where the previous owner stopped. For each
// departure, the owner appends one decision to the airport's log, under a fencing token. Every
// member follows all airports with a follower.Tailer, and shows them on its board. The director
// kills a member, starts a fourth member, drains a member, and shuts a member down. The director
// also stops a member after core has checked a write, but before the write is sent. Finally, the
// director compares the logs and the members' boards with the flights file. Package
// internal/proof/history checks the members' calls and the store's answers. With -unfenced, the
// demonstration runs without the fence, and reports the resulting damage.
//
// By default, the logs are in a temporary SQLite database. The -backend flag selects a PostgreSQL,
// MariaDB, ZooKeeper, Consul or Redis server, or a three-member etcd cluster. The demonstration
// starts this server or cluster. Once during the run, the demonstration kills and restarts the
// server or a member of the cluster.
//
//	go run ./cmd/demo
//	go run ./cmd/demo -backend postgres
//	go run ./cmd/demo -unfenced
//	go run ./cmd/demo -board 127.0.0.1:8080 -duration 10m    and look at it in a browser
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-go/tenure/core"
	calls "github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/trace"
)

func main() {
	if os.Getenv(memberEnv) != "" {
		os.Exit(runMember(os.Stdin, os.Stdout))
	}
	// The kernel kills the children when the thread that started them exits.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Running the command leaves no process behind. Files are left only if an option requests them or
// judgeCalls keeps a history.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stores(), stdout)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	var r *report
	var kept string
	if err == nil {
		r, kept, err = play(ctx, o, stdout, stderr)
	}
	if err == nil {
		err = r.write(stdout, o.json)
	}
	if kept != "" {
		_, _ = fmt.Fprintln(stderr, kept)
	}
	switch {
	case ctx.Err() != nil:
		_, _ = fmt.Fprintln(stderr, "demo: interrupted; every process is gone")
		return exitInterrupted
	case err != nil:
		_, _ = fmt.Fprintln(stderr, oneLine(err))
		return exitInput
	}
	return r.exitCode()
}

const maxLineRunes = 600 // maximum length of an error, which may contain the log of a server

// oneLine formats an error as a single line that begins with the command's name.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if r := []rune(text); len(r) > maxLineRunes {
		text = string(r[:maxLineRunes]) + "..."
	}
	return "demo: " + strings.TrimPrefix(strings.ReplaceAll(text, "demo: ", ""), "tenure: ")
}

func (r *report) write(w io.Writer, asJSON bool) error {
	if !asJSON {
		return r.print(w)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// If the database is kept, the returned string describes its location.
func play(ctx context.Context, o *options, stdout, stderr io.Writer) (r *report, kept string, err error) {
	flights, err := openTimetable(o.flights)
	if err != nil {
		return nil, "", err
	}
	cities, err := airportNames()
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "tenure-demo-calls-")
	if err != nil {
		return nil, "", fmt.Errorf("demo: no temporary directory: %w: set TMPDIR", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := openPlace(ctx, o)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if closing := p.close(err != nil); err == nil {
			err = closing
		}
		if o.keep {
			kept = p.describe()
		}
	}()

	progress := stdout
	if o.json {
		progress = stderr
	}
	d := &director{
		o: o, server: p.server, flights: flights, cities: cities, history: newHistory(), progress: progress,
		schedule: newSchedule(o.seed, o.nodes(), flights.total),
		config: memberConfig{Backend: o.backend, DSN: p.dsn, Namespace: p.namespace, Flights: o.flights, TTL: o.ttl,
			Unfenced: o.unfenced, Measured: o.board != ""},
		reports: make(chan childReport), quit: make(chan struct{}), dir: dir,
	}
	for _, n := range o.nodes() {
		d.members = append(d.members, &node{label: n})
	}
	if o.board != "" {
		if d.web, err = startWeb(ctx, o.board, p.backend, o.ttl); err != nil {
			return nil, "", err
		}
	}
	err = d.direct(ctx)
	err = errors.Join(err, d.web.close())
	if err != nil {
		return nil, "", err
	}
	r = &report{
		Backend: o.backend, Members: o.members, TTLMillis: o.ttl.Milliseconds(), Seed: o.seed, Unfenced: o.unfenced,
		Seconds: time.Since(d.began).Seconds(), Airports: len(flights.airports), Departures: flights.total,
	}
	if err := r.examine(ctx, p.backend, flights, d.calls); err != nil {
		return nil, "", err
	}
	if err := r.checkTraces(ctx, dir); err != nil {
		return nil, "", err
	}
	r.measure(d.history, o.ttl)
	r.compareBoards(d.history, trueBoard(flights))
	r.judge()
	return r, "", nil
}

const (
	pageSize  = 500              // number of entries of a log in one read
	readLimit = 30 * time.Second // time limit for reading all logs
)

// examine compares every airport's log with the truth, and checks the members' recorded calls.
func (r *report) examine(ctx context.Context, b core.Backend, flights *timetable, recorded []string) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	rec, err := calls.NewRecorder("director")
	if err != nil {
		return err
	}
	b = calls.Wrap(b, rec)
	for _, airport := range flights.airports {
		var log []entry
		for {
			page, err := b.ReadLog(ctx, core.ShardID(airport), core.Seq(len(log)), pageSize)
			if err != nil {
				return fmt.Errorf("demo: read the log of %s: %w", airport, err)
			}
			if len(page.Entries) == 0 {
				break
			}
			for _, e := range page.Entries {
				log = append(log, entry{int64(e.Seq), int64(e.Token), e.Payload})
			}
		}
		r.Decisions += len(log)
		r.Damage.checkLog(airport, flights.from[airport], log)
	}
	h, err := calls.Load(recorded...)
	if err != nil {
		return fmt.Errorf("demo: the members' records: %w", err)
	}
	return r.judgeCalls(calls.Merge(h, rec.History()))
}

// traceClocks bounds the difference between the members' wall clocks. In the demonstration, all
// members read the same clock.
const traceClocks = 5 * time.Millisecond

// checkTraces checks the members' traces in the same way as "tenure check". checkTraces skips the
// traces of a control, which deliberately breaks the rules.
func (r *report) checkTraces(ctx context.Context, dir string) error {
	if r.Unfenced {
		return nil
	}
	files, err := trace.FilesIn(dir)
	if err != nil {
		return err
	}
	checked, err := trace.Check(ctx, files, traceClocks)
	if err == nil && len(checked.Unread) > 0 {
		err = errors.New(checked.Unread[0])
	}
	if err != nil {
		return fmt.Errorf("demo: the members' traces: %w", err)
	}
	r.Steps.N, r.Steps.Breaches = int(checked.Replayed), len(checked.Breaches)
	for _, b := range checked.Breaches[:min(len(checked.Breaches), maxExamples)] {
		r.Steps.Examples = append(r.Steps.Examples, b.Rule+": "+b.Text)
	}
	return nil
}

// judgeCalls looks for answers that no order of the operations can explain. Unless the run is a
// control, judgeCalls keeps a history with such answers.
func (r *report) judgeCalls(h *calls.History) (err error) {
	found := calls.Check(h, nil)
	r.Calls.N, r.Calls.Contradictions = len(h.Operations), len(found)
	for _, f := range found[:min(len(found), maxExamples)] {
		r.Calls.Examples = append(r.Calls.Examples, fmt.Sprintf("%s %s: %s: %s", f.Rule, f.Check, f.Shard, f.Message))
	}
	if len(found) > 0 && !r.Unfenced {
		again := fmt.Sprintf("go run ./cmd/demo -backend %s -seed %d", r.Backend, r.Seed)
		r.Calls.Kept, err = calls.Save(os.TempDir(), "tenure-demo", again, h, found)
	}
	return err
}
