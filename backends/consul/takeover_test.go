package consul

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// These variables make the test binary a holder. They contain the kind of lock, the address, and
// the namespace.
const (
	holderVariable = "TENURE_CONSUL_TEST_HOLDER"
	takeoverTTL    = time.Second
	lockTTL        = 10 * time.Second // the smallest that Consul accepts
	lockRounds     = 3                // of 10 to 25 s
)

// holder holds a lease, or a lock of Consul's client, until it is killed.
func holder(how string) error {
	var kind, address, name string
	if _, err := fmt.Sscan(how, &kind, &address, &name); err != nil {
		return err
	}
	led := func() { fmt.Println("leads") }
	if kind == "lock" {
		c, err := api.NewClient(&api.Config{Address: address})
		if err != nil {
			return err
		}
		if _, err := takeLock(c, name); err != nil {
			return err
		}
		led()
		select {}
	}
	return elect(context.Background(), address, name, led)
}

// takeLock waits for a lock with the smallest settings that Consul accepts.
func takeLock(c *api.Client, name string) (*api.Lock, error) {
	l, err := c.LockOpts(&api.LockOptions{Key: name, SessionTTL: lockTTL.String(), LockDelay: time.Millisecond})
	if err != nil {
		return nil, err
	}
	_, err = l.Lock(nil)
	return l, err
}

// elect contends for one shard until ctx ends, and calls led when it leads.
func elect(ctx context.Context, address, name string, led func()) error {
	b, err := Open(ctx, Config{Address: address}, name, &Options{Create: true})
	if err != nil {
		return err
	}
	defer b.Close()
	e, err := core.NewElector(b, &core.Options{TTL: takeoverTTL,
		Node: fmt.Sprint("p", os.Getpid(), "-", time.Now().UnixNano())})
	if err != nil {
		return err
	}
	err = e.Contend(func(ctx context.Context, _ *core.Lease) error {
		led()
		<-ctx.Done()
		return nil
	}, "s")
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

// startHolder returns when the holder leads.
func startHolder(b *testing.B, kind string, server *servers.Server, name string) *exec.Cmd {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", holderVariable, kind, server.Addr(), name))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if !bufio.NewScanner(out).Scan() {
		b.Fatal("the holder ended: ", cmd.Wait())
	}
	return cmd
}

// BenchmarkTakeover measures the time from the SIGKILL of a holder in another process until a
// standby leads, as a multiple of the TTL of one second. For a few rounds, it also measures a lock
// of Consul's client, whose smallest TTL is ten seconds. Run it with -benchtime=30x.
func BenchmarkTakeover(b *testing.B) {
	server := pool.Get(b, servers.Consul, nil)
	b.Run("tenure", func(b *testing.B) {
		var took []float64
		for i := 0; b.Loop(); i++ {
			name := fresh()
			cmd := startHolder(b, "elector", server, name)
			ctx, cancel := context.WithCancel(b.Context())
			led, done := make(chan time.Time, 1), make(chan error, 1)
			go func() { done <- elect(ctx, server.Addr(), name, func() { led <- time.Now() }) }()
			// By now the standby has joined. The kills are spread over every phase of the
			// heartbeats.
			time.Sleep(takeoverTTL + time.Duration(i%10)*takeoverTTL/30)
			killed := time.Now()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			took = append(took, (<-led).Sub(killed).Seconds()/takeoverTTL.Seconds())
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		report(b, took)
	})
	b.Run("lock", func(b *testing.B) {
		c, err := client(server)
		if err != nil {
			b.Fatal(err)
		}
		var took []float64
		for b.Loop() {
			if len(took) == lockRounds {
				continue
			}
			name := fresh()
			cmd := startHolder(b, "lock", server, name)
			led := make(chan time.Time, 1)
			go func() {
				if _, err := takeLock(c, name); err != nil {
					b.Error(err)
				}
				led <- time.Now()
			}()
			time.Sleep(time.Second)
			killed := time.Now()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			took = append(took, (<-led).Sub(killed).Seconds()/lockTTL.Seconds())
		}
		report(b, took)
	})
}

func report(b *testing.B, took []float64) {
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "median-TTL")
	b.ReportMetric(took[len(took)-1], "max-TTL")
	b.ReportMetric(float64(len(took)), "rounds")
	b.ReportMetric(0, "ns/op") // it would include the waits before the kill
}
