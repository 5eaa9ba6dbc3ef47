package stores_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

const (
	freshPulse = 100 * time.Millisecond
	freshBound = 50 * time.Millisecond
)

// askFresh follows shard a and calls Fresh every millisecond. For each call, it prints the time of
// the call, the entry that was applied after the call, and 1 if the answer was fresh.
func askFresh(ctx context.Context, folder string) error {
	b, err := sqlite.Open(ctx, filepath.Join(folder, "log.db"), "app", nil)
	if err != nil {
		return err
	}
	defer b.Close()
	tailer, err := follower.NewTailer(b, &follower.Options{Pulse: freshPulse, Resync: time.Hour})
	if err != nil {
		return err
	}
	discard := follower.Memory(func(context.Context, follower.Batch) error { return nil }, nil)
	if err := tailer.Follow("test", discard, "a"); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- tailer.Run(ctx); stop() }()
	for ctx.Err() == nil {
		asked, fresh := time.Now(), 0
		if tailer.Fresh("a", freshBound) == nil {
			fresh = 1
		}
		fmt.Println(asked.UnixNano(), tailer.Position("test", "a").Seq, fresh)
		time.Sleep(time.Millisecond)
	}
	stop()
	return <-done
}

// TestFreshStopped repeatedly stops a follower with SIGSTOP while entries are written. Whenever the
// follower reports fresh, it has applied every entry that was acknowledged more than two pulses
// plus the bound earlier.
func TestFreshStopped(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: processes that are stopped run in .ci/run")
	}
	folder := t.TempDir()
	b, err := sqlite.Open(t.Context(), filepath.Join(folder, "log.db"), "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	o := newOwner(t, b)
	var acknowledged []time.Time // by number
	o.append("a", 1)
	acknowledged = append(acknowledged, time.Time{}, time.Now())

	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=fresh:"+folder)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := sync.OnceValue(child.Wait)
	t.Cleanup(func() { child.Process.Kill(); _ = ended() })

	type answer struct {
		asked   int64
		applied driver.Seq
		fresh   int
	}
	var answers []answer
	var reader sync.WaitGroup
	first := make(chan struct{})
	reader.Go(func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			var a answer
			if _, err := fmt.Sscan(in.Text(), &a.asked, &a.applied, &a.fresh); err != nil {
				t.Errorf("answer %q: %v", in.Text(), err)
			}
			if answers = append(answers, a); len(answers) == 1 {
				close(first)
			}
		}
	})
	select {
	case <-first:
	case <-time.After(ample.Time):
		t.Fatal("the follower says nothing")
	}
	produce := func(d time.Duration) {
		for range ample.During(d, 5*time.Millisecond) {
			o.append("a", 1)
			acknowledged = append(acknowledged, time.Now())
		}
	}
	for range *stops {
		produce(time.Duration(rand.IntN(300)) * time.Millisecond)
		if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		produce(4*freshPulse + time.Duration(rand.IntN(1000))*time.Millisecond)
		if err := child.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	produce(500 * time.Millisecond)
	if err := child.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	reader.Wait()
	if err := ended(); err != nil {
		t.Error(err)
	}

	fresh, owed := 0, 0
	const lag = 2*freshPulse + freshBound
	for _, a := range answers {
		if a.fresh == 0 {
			continue
		}
		fresh++
		for owed+1 < len(acknowledged) && acknowledged[owed+1].UnixNano() < a.asked-lag.Nanoseconds() {
			owed++
		}
		if int(a.applied) < owed {
			t.Errorf("fresh with entry %d applied, while entry %d was acknowledged %v before", a.applied, owed,
				time.Unix(0, a.asked).Sub(acknowledged[owed]))
		}
	}
	t.Logf("%d stops, %d entries, %d answers, %d of them fresh", *stops, len(acknowledged)-1, len(answers), fresh)
	if fresh == 0 {
		t.Error("no answer said fresh: this run shows nothing")
	}
}
