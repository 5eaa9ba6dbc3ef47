package zookeeper

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// candidateVariable makes the test binary a candidate of BenchmarkTakeover. Its value contains a
// server, and a namespace or, for zk.Lock, a node.
const candidateVariable = "TENURE_ZOOKEEPER_TEST_CANDIDATE"

const (
	takeoverTTL = time.Second
	// lockTTL is the shortest session that a server at its default tickTime grants.
	lockTTL = 4 * time.Second
)

// candidate contends for one shard, or lock, until its input ends, and reports when it leads.
func candidate(how string) error {
	server, name, _ := strings.Cut(how, " ")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		bufio.NewScanner(os.Stdin).Scan()
		stop()
	}()
	if strings.HasPrefix(name, "/") {
		conn, _, err := zk.Connect([]string{server}, lockTTL, zk.WithLogger(silent{}))
		if err != nil {
			return err
		}
		defer conn.Close()
		fmt.Println("joined")
		if err := zk.NewLock(conn, name, zk.WorldACL(zk.PermAll)).Lock(); err != nil {
			return err
		}
		fmt.Println("leads")
		<-ctx.Done()
		return nil
	}
	b, err := Open(ctx, []string{server}, name, &Options{Create: true})
	if err != nil {
		return err
	}
	defer b.Close()
	e, err := core.NewElector(b, &core.Options{TTL: takeoverTTL, Node: fmt.Sprint("p", os.Getpid())})
	if err != nil {
		return err
	}
	err = e.Contend(func(ctx context.Context, _ *core.Lease) error {
		fmt.Println("leads")
		<-ctx.Done()
		return nil
	}, "s")
	if err != nil {
		return err
	}
	go func() {
		view := e.View()
		for view != nil && ctx.Err() == nil {
			if slices.ContainsFunc(view.Members,
				func(m core.Member) bool { return m.Node == fmt.Sprint("p", os.Getpid()) }) {
				fmt.Println("joined")
				return
			}
			view, err = e.WaitView(ctx, view)
		}
	}()
	return e.Run(ctx)
}

type process struct {
	cmd           *exec.Cmd
	joined, leads chan time.Time
}

func startCandidate(b *testing.B, how string) *process {
	b.Helper()
	p := &process{cmd: exec.CommandContext(b.Context(), os.Args[0]), joined: make(chan time.Time, 1),
		leads: make(chan time.Time, 1)}
	p.cmd.Env = append(os.Environ(), candidateVariable+"="+how)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := p.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			switch lines.Text() {
			case "joined":
				p.joined <- time.Now()
			case "leads":
				p.leads <- time.Now()
			}
		}
	}()
	b.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// BenchmarkTakeover measures the time from the SIGKILL of the leader's process until another
// process leads, with the server's default tickTime of 2 s. Run it with -benchtime=30x. The TTL is
// Tenure's TTL or, for zk.Lock, the session's.
func BenchmarkTakeover(b *testing.B) {
	server := pool.Get(b, servers.ZooKeeper, nil)
	for _, c := range []struct {
		name, prefix string
		ttl          time.Duration
	}{{"tenure", "bench/kill", takeoverTTL}, {"Lock", "/kill", lockTTL}} {
		b.Run(c.name, func(b *testing.B) {
			how := fmt.Sprint(server.Addr(), " ", c.prefix, time.Now().UnixNano())
			leader := startCandidate(b, how)
			first(b, leader.leads)
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				successor := startCandidate(b, how)
				first(b, successor.joined)
				// The process is killed at any point between two heartbeats, after the successor
				// knows of them.
				time.Sleep(takeoverTTL + time.Duration(len(took)*37%100)*c.ttl/300)
				b.StartTimer()
				start := time.Now()
				if err := leader.cmd.Process.Kill(); err != nil {
					b.Fatal(err)
				}
				took = append(took, first(b, successor.leads).Sub(start))
				leader = successor
			}
			sampled(b, took)
			b.ReportMetric(took[len(took)/2].Seconds()/c.ttl.Seconds(), "p50-TTL")
			b.ReportMetric(took[len(took)-1].Seconds()/c.ttl.Seconds(), "max-TTL")
		})
	}
}

func first(b *testing.B, said <-chan time.Time) time.Time {
	b.Helper()
	select {
	case at := <-said:
		return at
	case <-time.After(30 * time.Second):
		b.Fatal("nobody leads")
		return time.Time{}
	}
}

// sampled reports the median and the extremes of samples, which it sorts.
func sampled(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[0]), "min-ms")
	b.ReportMetric(ms(took[len(took)-1]), "max-ms")
}
