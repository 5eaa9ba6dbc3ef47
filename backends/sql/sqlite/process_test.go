//go:build unix

package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

const childEnv = "TENURE_SQLITE_CHILD"

// leadTTL is the TTL of the role "lead". No test waits that long.
const leadTTL = time.Hour

func TestMain(m *testing.M) {
	if role, path, ok := strings.Cut(os.Getenv(childEnv), ":"); ok {
		if err := child(role, path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child is another process on the same files. It ends when its input ends.
func child(role, path string) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	b, err := sqlite.Open(ctx, path, "app", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if role == "lead" {
		return core.RunSingleton(ctx, b, "a", func(ctx context.Context, l *core.Lease) error {
			fmt.Println("leads", l.Token())
			<-ctx.Done()
			return nil
		}, &core.Options{Node: "host", TTL: leadTTL, BackoffMin: 100 * time.Millisecond})
	}
	if name, ok := strings.CutPrefix(role, "once-"); ok {
		result, err := core.RunOnce(ctx, b, "migrate", func(ctx context.Context, _ *core.Lease) ([]byte, error) {
			fmt.Println("runs")
			if name == "victim" {
				<-ctx.Done()
			}
			return []byte("by " + name), ctx.Err()
		}, &core.Options{Node: name, TTL: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		fmt.Printf("got %q\n", result)
		return err
	}
	if role == "idle" {
		fmt.Println("open")
		<-ctx.Done()
		return nil
	}
	if role == "measure" {
		return measure(ctx, b)
	}
	if role == "hold" {
		tx, err := b.BeginTx(ctx)
		if err != nil {
			return err
		}
		fmt.Println("held")
		<-ctx.Done()
		return tx.Rollback()
	}
	if strings.HasPrefix(role, "some") {
		err := hammer(ctx, b, role, 1)
		<-ctx.Done()
		return err
	}
	return hammer(ctx, b, role, math.MaxInt)
}

// hammer takes the shard from its holder, appends a few entries, and prints each acknowledged
// entry. It does so for some rounds, or until the context ends.
func hammer(ctx context.Context, b *sqlite.Backend, name string, rounds int) error {
	m := member(name)
	s, err := b.Join(ctx, m)
	if err != nil {
		return err
	}
	for round := 0; ctx.Err() == nil && round < rounds; {
		view, err := b.Observe(ctx, driver.ObserveQuery{})
		if err != nil {
			break
		}
		claim := driver.Claim{Shard: "a", Preempt: true}
		if len(view.Shards) > 0 {
			claim.Seen = view.Shards[0].Owner
		}
		res, err := s.Acquire(ctx, []driver.Claim{claim})
		if err != nil || res[0].Err != nil {
			continue
		}
		round++
		number := res[0].Head.Number
		for i := range 20 {
			payload := fmt.Sprintf("%s-%d-%d", name, round, i)
			number++
			out, err := s.Commit(ctx, []driver.Write{appendOf(res[0].Fence, number, payload)})
			if err != nil || out[0].Err != nil {
				break
			}
			fmt.Println(out[0].Head.Seq, int64(res[0].Fence.Token), payload)
		}
	}
	return nil
}

type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // closed with the output
}

func start(t *testing.T, role, path string, under ...string) *process {
	t.Helper()
	command := append(under, os.Args[0])
	p := &process{cmd: exec.Command(command[0], command[1:]...), lines: make(chan string, 1<<20)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+role+":"+path)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			p.lines <- in.Text()
		}
	}()
	t.Cleanup(func() { p.kill() })
	return p
}

// kill ends the process without a chance to clean up. A second call has no effect.
func (p *process) kill() {
	p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

func (p *process) next(t *testing.T, n int) []string {
	t.Helper()
	var lines []string
	for len(lines) < n {
		select {
		case line, ok := <-p.lines:
			if !ok {
				t.Fatalf("the process ended after %d of %d lines", len(lines), n)
			}
			lines = append(lines, line)
		case <-time.After(ample.Time): // long, because the processes compete for one file
			t.Fatalf("%d of %d lines after %v", len(lines), n, ample.Time)
		}
	}
	return lines
}

// rest returns the remaining output lines of a process that has ended.
func (p *process) rest() (lines []string) {
	for line := range p.lines {
		lines = append(lines, line)
	}
	return lines
}

// Two processes take a shard from each other and append. One process is repeatedly killed in the
// middle. Every acknowledged entry is in the log once, in its acknowledged place. Numbers have no
// gaps, and tokens never decrease (F1, L1, A2).
func TestProcessesHammerOneFile(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b := open(t, path, nil)
	s := join(t, b, "parent")
	steady := start(t, "steady", path)
	var acked []string
	worst := time.Duration(0)
	for i := range 4 {
		victim := start(t, fmt.Sprintf("victim%d", i), path)
		acked = append(acked, victim.next(t, 40+i*13)...)
		begun := time.Now()
		if err := s.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
		worst = max(worst, time.Since(begun))
		victim.kill()
		acked = append(acked, victim.rest()...)
		acked = append(acked, steady.next(t, 20)...)
	}
	steady.in.Close()
	if err := steady.cmd.Wait(); err != nil {
		t.Error(err)
	}
	acked = append(acked, steady.rest()...)
	t.Logf("%d acknowledged entries; slowest heartbeat %v", len(acked), worst)

	log := make(map[driver.Seq]driver.Entry)
	for after, last := driver.Seq(0), driver.Token(0); ; {
		page, err := b.ReadLog(t.Context(), "a", after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			if after++; e.Seq != after || e.Token < last {
				t.Fatalf("entry %d with token %d after entry %d with token %d", e.Seq, e.Token, after-1, last)
			}
			last, log[e.Seq] = e.Token, e
		}
		if len(page.Entries) == 0 {
			break
		}
	}
	for _, line := range acked {
		var seq driver.Seq
		var token driver.Token
		var payload string
		if _, err := fmt.Sscan(line, &seq, &token, &payload); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if e := log[seq]; string(e.Payload) != payload || e.Token != token {
			t.Errorf("entry %d is %q with token %d; %q with token %d was acknowledged", seq, e.Payload, e.Token, payload, token)
		}
	}
}

// A write waits for another writer before it reads. Otherwise, its reads would be out of date, and
// SQLite would refuse the write.
func TestWriteWaitsForTheOther(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b := open(t, path, nil)
	s := join(t, b, "n1")
	fence := acquire(t, s, "a", driver.Owner{}).Fence
	db, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil) // another process's
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	committed := make(chan error, 1)
	go func() {
		out, err := s.Commit(t.Context(), []driver.Write{appendOf(fence, 1, "x")})
		if err == nil {
			err = out[0].Err
		}
		committed <- err
	}()
	select {
	case err := <-committed:
		t.Fatalf("the commit ended while another transaction held the lock: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-committed; err != nil {
		t.Error(err)
	}
}

// A process that is stopped inside a write transaction delays other writes, but not heartbeats or
// reads. The delayed writes end with their contexts. Killing the stopped process unblocks writes.
func TestProcessStoppedInAWrite(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	b := open(t, path, nil)
	s := join(t, b, "n1")
	fence := acquire(t, s, "a", driver.Owner{}).Fence
	p := start(t, "hold", path)
	p.next(t, 1)
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Commit(ctx, []driver.Write{appendOf(fence, 1, "x")})
	if !errors.Is(err, driver.ErrRetry) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("commit: %v, want ErrRetry because the context ended", err)
	}
	if err := s.Beat(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.ReadLog(t.Context(), "a", 0, 1); err != nil {
		t.Error(err)
	}
	p.kill()
	commit(t, s, appendOf(fence, 1, "y"))
}

// A process is killed in the middle of a RunOnce job. One of the waiting processes reruns the job.
// All waiting processes, and a later process, get the result.
func TestRunOnceIsKilled(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	open(t, path, nil)
	victim := start(t, "once-victim", path)
	victim.next(t, 1)
	a, b := start(t, "once-a", path), start(t, "once-b", path)
	victim.kill()
	lines := append(a.rest(), b.rest()...)
	lines = append(lines, start(t, "once-later", path).rest()...)
	count := make(map[string]int)
	for _, line := range lines {
		count[line]++
	}
	if count["runs"] != 1 || count[`got "by a"`] != 3 && count[`got "by b"`] != 3 {
		t.Errorf("%q after the first was killed, want one run, and three times its result", lines)
	}
}
