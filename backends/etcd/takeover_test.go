package etcd

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// candidateVariable makes the test binary a candidate of BenchmarkTakeover. Its value names an
// endpoint and a namespace.
const candidateVariable = "TENURE_ETCD_TEST_CANDIDATE"

const takeoverTTL = time.Second

// candidate contends for one shard until its input ends, and reports when it leads.
func candidate(how string) error {
	endpoint, namespace, _ := strings.Cut(how, " ")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	b, err := Open(ctx, clientv3.Config{Endpoints: []string{endpoint}}, namespace, &Options{Create: true})
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
		bufio.NewScanner(os.Stdin).Scan()
		stop()
	}()
	return e.Run(ctx)
}

type process struct {
	cmd   *exec.Cmd
	leads chan time.Time
}

func startCandidate(b *testing.B, how string) *process {
	b.Helper()
	p := &process{cmd: exec.CommandContext(b.Context(), os.Args[0]), leads: make(chan time.Time, 1)}
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
			if lines.Text() == "leads" {
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
// process leads, as a multiple of the TTL. Run it with -benchtime=30x.
func BenchmarkTakeover(b *testing.B) {
	server := pool.Get(b, servers.Etcd, nil)
	how := fmt.Sprint(server.Addr(), " bench/kill", time.Now().UnixNano())
	leader := startCandidate(b, how)
	first(b, leader)
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		successor := startCandidate(b, how)
		joined(b, server, how, 2)
		// The process is killed at any point between two heartbeats.
		time.Sleep(time.Duration(len(took)*37%100) * takeoverTTL / 300)
		b.StartTimer()
		start := time.Now()
		if err := leader.cmd.Process.Kill(); err != nil {
			b.Fatal(err)
		}
		took = append(took, first(b, successor).Sub(start))
		leader = successor
	}
	sampled(b, took)
	b.ReportMetric(took[len(took)/2].Seconds()/takeoverTTL.Seconds(), "p50-TTL")
	b.ReportMetric(took[len(took)-1].Seconds()/takeoverTTL.Seconds(), "max-TTL")
}

func first(b *testing.B, p *process) time.Time {
	b.Helper()
	select {
	case at := <-p.leads:
		return at
	case <-time.After(30 * time.Second):
		b.Fatal("nobody leads")
		return time.Time{}
	}
}

// joined waits until n members are alive and have sent a heartbeat.
func joined(b *testing.B, server *servers.Server, how string, n int) {
	b.Helper()
	_, namespace, _ := strings.Cut(how, " ")
	client := newClient(b, config(b, server))
	for ctx := bounded(b, ample.Time); ; {
		resp, err := client.Get(ctx, namespace+"/!state/member/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			b.Fatal(err)
		}
		if resp.Count == int64(n) {
			time.Sleep(takeoverTTL)
			return
		}
	}
}
