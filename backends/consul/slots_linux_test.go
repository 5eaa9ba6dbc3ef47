package consul

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// sockets lists the sockets to a port of this host that belong to a process. A socket that is being
// closed belongs to no process.
func sockets(t *testing.T, port int) map[string]bool {
	t.Helper()
	file, err := os.Open("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	open := map[string]bool{} // by the local end
	for lines := bufio.NewScanner(file); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 10 {
			continue
		}
		_, hex, _ := strings.Cut(f[2], ":")
		if to, err := strconv.ParseUint(hex, 16, 16); err == nil && int(to) == port && f[9] != "0" {
			open[f[1]] = true
		}
	}
	return open
}

// load makes concurrent calls of all kinds until it has made some commits, and cancels many calls.
func load(t *testing.T, b *Backend, s driver.Session, fences []driver.Fence, commits int64, seen func() bool) {
	other := sqlfault.Join(t, b, "n2")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	watch := func(do func() error) {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := do(); err != nil && !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var cursor, tail driver.Cursor
	watch(func() error {
		v, err := b.Observe(ctx, driver.ObserveQuery{Since: cursor, Beats: []driver.Beat{{Session: other.ID()}}})
		if err == nil {
			cursor = v.Cursor
		}
		return err
	})
	watch(func() error {
		p, err := b.TailLog(ctx, tail, 100)
		if err == nil {
			tail = p.Cursor
		}
		return err
	})
	watch(func() error { return s.Beat(ctx) })
	for i := range 4 { // each cancelled read costs the slot its connection
		watch(func() error {
			short, cancel := context.WithTimeout(ctx, time.Duration(i+1)*500*time.Microsecond)
			defer cancel()
			_, err := b.List(short, fences[0].Shard, "", 0, 0)
			return err
		})
	}
	var done atomic.Int64
	for _, f := range fences[:min(20, len(fences))] {
		number := driver.WriteNo(0)
		watch(func() error {
			number++
			done.Add(1)
			return tryCommit(ctx, s, entry1(f, number, []byte("x")))
		})
	}
	again(t, "commits", func(context.Context) error {
		if got := done.Load(); (got < commits || !seen()) && !t.Failed() {
			return fmt.Errorf("%d of %d commits, and the connections that the load needs were seen: %t", got, commits, seen())
		}
		return nil
	})
	cancel()
	all.Wait()
}

// usualSlots are in use while heartbeats are answered.
const usualSlots = 1 + requestSlots + waitSlots

// TestConnections: a process has at most six connections, for any number of shards, even while
// calls are cancelled.
func TestConnections(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 10_000} {
		server := servers.New(t, servers.Consul, nil) // so that no other process connects to its port
		_, text, err := net.SplitHostPort(server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		var most atomic.Int64
		stop, counted := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(counted)
			var before map[string]bool
			for pace := time.NewTicker(5 * time.Millisecond); ; {
				// A socket that is being closed is missing from the next list, and the kernel's
				// list does not show a single instant.
				now, lasting := sockets(t, port), 0
				for own := range now {
					if before[own] {
						lasting++
					}
				}
				before = now
				most.Store(max(most.Load(), int64(lasting)))
				select {
				case <-stop:
					pace.Stop()
					return
				case <-pace.C:
				}
			}
		}()
		b, err := Open(t.Context(), Config{Address: server.Addr()}, "app", &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		s := sqlfault.Join(t, b, "n1")
		fences, _ := acquire(t, s, sqlfault.Claims(shards))
		load(t, b, s, fences, 100, func() bool { return most.Load() >= 3 }) // writes, heartbeats, queries
		close(stop)
		<-counted
		t.Logf("%d shards: at most %d connections", shards, most.Load())
		if most.Load() > usualSlots {
			t.Errorf("%d shards: %d connections, want at most %d", shards, most.Load(), usualSlots)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		again(t, "closing", func(context.Context) error {
			if left := len(sockets(t, port)); left > 0 {
				return fmt.Errorf("%d connections are left", left)
			}
			return nil
		})
	}
}

// TestDialInVain: if a dial is still pending after its heartbeat gave up, the dial does not block
// the next heartbeat or lead to a second connection.
func TestDialInVain(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Consul, nil)
	var dials, open, most atomic.Int64
	dialing := make(chan struct{})
	reach := dialer("")
	tr := single(func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 { // the network is cut
			close(dialing)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		conn, err := reach(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		raise(&most, open.Add(1))
		return &countedConn{Conn: conn, closed: func() { open.Add(-1) }}, nil
	})
	client, err := api.NewClient(&api.Config{Address: server.Addr(), Transport: tr})
	if err != nil {
		t.Fatal(err)
	}
	s, keys := storeOver(t, shared(client, tr.CloseIdleConnections))
	beat := func(ctx context.Context) error {
		_, err := s.Apply(ctx, &changelog.Batch{Batch: kv.Batch{Heartbeat: true,
			Txns: []kv.Txn{{Ops: []kv.Op{{Key: keys.Beat("x"), Value: []byte("1")}}}}}})
		return err
	}
	// The heartbeat's time ends during the dial, however slow the machine is.
	given, end := context.WithCancel(t.Context())
	go func() {
		<-dialing
		end()
	}()
	if err := beat(given); !errors.Is(err, context.Canceled) {
		t.Errorf("a heartbeat into a network that is cut: %v", err)
	}
	within, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	for range 3 {
		if err := beat(within); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
	// On a busy machine, http.Transport may give up a connection and dial again.
	if dials.Load() < 2 || most.Load() != 1 {
		t.Errorf("%d dials and %d connections at once, want at least 2, and 1", dials.Load(), most.Load())
	}
}
