//go:build unix

// Command demo is the flight board: 20,000 real departures from 220 airports. Each airport is a
// shard. Three member processes of this program share them with a sharding.Manager. The owner
// of an airport appends one decision per departure to the airport's log, under its fencing
// token, from where the previous owner stopped. Every member shows all airports with a
// follower.Tailer. The director kills one member, lets a fourth join, drains one, and shuts one
// down. It stops another between the last check of a write and its sending. At the end, it
// compares the logs and the members' boards with the file, and package internal/proof/history
// judges the members' calls and the answers. With -unfenced, the demo runs without the fence,
// and finds damage.
//
// The logs are in a temporary SQLite database. With -backend, they are on a PostgreSQL,
// MariaDB, ZooKeeper, Consul or Redis server, or in an etcd cluster of three members. The run
// starts the server, and once kills and restarts it, or one of the three.
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
	// The kernel ends the children when the thread that started them ends.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the command and returns its exit code. It leaves no process and, unless asked to, no
// file.
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

const maxLineRunes = 600 // of an error, which may contain the log of a server

// oneLine returns an error as one line that begins with the command's name once.
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

// play runs the flight board. If the database stays, kept describes where it is.
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
	pageSize  = 500              // entries of a log in one read
	readLimit = 30 * time.Second // for reading all logs
)

// examine reads every airport's log, compares it with the truth, and judges the members' records of
// their calls.
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

// traceClocks is how far the members' wall clocks may be apart. They share one clock.
const traceClocks = 5 * time.Millisecond

// checkTraces checks the members' traces, as "tenure check" does. It skips the control's, because
// the control breaks the rules.
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

// judgeCalls looks for answers that no order of the store can explain. It keeps such a history,
// except that of the control, where it is expected.
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
