package stores_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// childEnv is the environment variable that makes this binary a follower. Its value contains how
// the follower keeps its positions, or "fresh", and the folder of all files.
const childEnv = "TENURE_FOLLOWER_CHILD"

// child follows until it is interrupted, or killed.
func child() (err error) {
	way, folder, _ := strings.Cut(os.Getenv(childEnv), ":")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if way == "fresh" {
		return askFresh(ctx, folder)
	}
	b, err := sqlite.Open(ctx, filepath.Join(folder, "log.db"), "app", nil)
	if err != nil {
		return err
	}
	defer b.Close()
	applier, done, err := keep(ctx, way, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	tailer, err := follower.NewTailer(b, &follower.Options{Batch: 32, OnEvent: func(e follower.Event) {
		if e.Kind == follower.Applied {
			fmt.Print(".")
		} else if e.Kind == follower.Failed {
			fmt.Fprintln(os.Stderr, e.Err)
		}
	}})
	if err != nil {
		return err
	}
	if err := tailer.Follow("test", applier, "*"); err != nil {
		return err
	}
	return tailer.Run(ctx)
}

// keep opens the follower's storage: a database with effects and positions, or a file of effects
// and a file of positions.
func keep(ctx context.Context, way, folder string) (follower.Applier, func() error, error) {
	if way == "sql" {
		db, err := sql.Open("sqlite", dsn(filepath.Join(folder, "app.db")))
		if err != nil {
			return nil, nil, err
		}
		s, err := follower.NewSQL(db, driver.SQLite, "test", insertEffects, nil)
		return s, db.Close, err
	}
	path := filepath.Join(folder, "effects")
	if err := wholeLines(path); err != nil {
		return nil, nil, err
	}
	effects, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	return follower.Stored(follower.NewFile(filepath.Join(folder, "positions")),
		func(_ context.Context, b follower.Batch) error {
			var text []byte
			for _, e := range b.Entries {
				text = fmt.Appendf(text, "%s %d %s\n", e.Shard, e.Seq, e.Payload)
			}
			mu.Lock()
			defer mu.Unlock()
			_, err := effects.Write(text)
			return err
		}, nil), effects.Close, nil
}

// wholeLines removes an incomplete last line, which a killed process may have written.
func wholeLines(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Truncate(path, int64(strings.LastIndexByte(string(text), '\n')+1))
}

// TestKilled repeatedly kills a follower while entries are written. If effects are committed with
// the position, each effect happens exactly once. Otherwise, each effect happens at least once, in
// order.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: processes that are killed run in .ci/run")
	}
	for _, way := range []string{"sql", "file"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			b, err := sqlite.Open(t.Context(), filepath.Join(folder, "log.db"), "app", nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close() })
			db := openDB(t, filepath.Join(folder, "app.db"))
			newSQL(t, db, insertEffects) // creates the tables

			o := newOwner(t, b)
			shards := []driver.ShardID{"a", "b", "c"}
			making, enough := context.WithCancel(t.Context())
			var maker sync.WaitGroup
			maker.Go(func() {
				tick := time.NewTicker(2 * time.Millisecond)
				defer tick.Stop()
				for making.Err() == nil {
					<-tick.C
					for _, s := range shards {
						o.append(s, 1+rand.IntN(5))
					}
				}
			})
			t.Cleanup(maker.Wait)
			t.Cleanup(enough)

			for range *kills {
				c := startChild(t, way, folder)
				if rand.IntN(8) > 0 {
					c.wait(1 + rand.IntN(4)) // until the follower has applied something
				}
				time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond) // at a random instant
				c.end(syscall.SIGKILL)
			}
			enough()
			maker.Wait()
			c := startChild(t, way, folder)
			doubled, total := 0, 0
			for _, s := range shards {
				want := o.head[s].Seq
				doubled += waitEffects(t, way, folder, db, string(s), want)
				total += int(want)
			}
			c.end(syscall.SIGTERM)
			t.Logf("%s: %d kills, %d entries, %d effects twice", way, *kills, total, doubled)
			if way == "file" && *kills >= 100 && doubled == 0 {
				t.Error("no kill came between an effect and its position: this run shows nothing")
			}
		})
	}
}

// waitEffects waits until all entries are applied, checks the effects, and returns the number of
// effects that existed before.
func waitEffects(t *testing.T, way, folder string, db *sql.DB, shard string, want core.Seq) (doubled int) {
	t.Helper()
	var last core.Seq
	if !ample.Soon(t.Context(), func() bool {
		if way == "sql" {
			if err := db.QueryRowContext(t.Context(), "SELECT COALESCE(MAX(seq), 0) FROM effects WHERE shard = ?",
				shard).Scan(&last); err != nil {
				t.Fatal(err)
			}
		} else {
			last, doubled = readEffects(t, filepath.Join(folder, "effects"), shard)
		}
		return last >= want
	}) {
		t.Fatalf("shard %s: applied up to %d of %d", shard, last, want)
	}
	if way == "sql" {
		checkEffects(t, db, shard, want)
	}
	return doubled
}

// readEffects reads a file of effects. Each line belongs to the next entry, or to an entry that was
// applied again.
func readEffects(t *testing.T, path, shard string) (last core.Seq, doubled int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	text = text[:strings.LastIndexByte(string(text), '\n')+1]
	for line := range strings.Lines(string(text)) {
		var s string
		var seq, payload core.Seq
		if _, err := fmt.Sscanf(line, "%s %d %d\n", &s, &seq, &payload); err != nil || seq != payload {
			t.Fatalf("effect %q: %v", line, err)
		}
		switch {
		case s != shard:
		case seq == last+1:
			last = seq
		case seq <= last:
			doubled++
		default:
			t.Fatalf("shard %s: the effect of entry %d comes after that of %d", shard, seq, last)
		}
	}
	return last, doubled
}

type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
	err strings.Builder
}

func startChild(t *testing.T, way, folder string) *process {
	t.Helper()
	c := &process{t: t, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childEnv+"="+way+":"+folder)
	c.cmd.Stderr = &c.err
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *process) wait(n int) {
	c.t.Helper()
	late := time.AfterFunc(ample.Time, func() { c.cmd.Process.Kill() })
	defer late.Stop()
	if _, err := io.ReadFull(c.out, make([]byte, n)); err != nil {
		c.end(syscall.SIGKILL)
		c.t.Fatalf("a follower ended, or applied nothing: %v: %s", err, c.err.String())
	}
}

func (c *process) end(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Error(err)
	}
	_, _ = io.Copy(io.Discard, c.out)
	err := c.cmd.Wait()
	status, _ := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if sig == syscall.SIGKILL && status.Signal() != sig || sig == syscall.SIGTERM && err != nil {
		c.t.Errorf("a follower ended with %v: %s", err, c.err.String())
	}
}
