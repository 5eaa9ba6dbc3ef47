package zookeeper

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/servers"
)

// TestChangeLogCandidate compares two ways in which a process learns what others
// changed: today's change logs, and a fixed number of records, written without a
// compare in the same transaction, whose version tells a reader whether it missed a
// write. The candidate is a bare client: no sessions, no fences, no snapshots.
func TestChangeLogCandidate(t *testing.T) {
	const shards, readers = 10_000, 10
	server := servers.New(t, servers.ZooKeeper, nil)
	fmt.Println("| | hand-over, median ms | requests | KiB | 200/s for 5 s: p50, p99 ms | requests a change | KiB a change | 1,000 at once, ms | requests | KiB |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	for range 2 {
		for _, c := range []struct {
			name string
			make func() (*learned, *meter, func(shards []int, seq int))
		}{
			{"change logs", func() (*learned, *meter, func([]int, int)) { return today(t, server, shards, readers) }},
			{"16 records", func() (*learned, *meter, func([]int, int)) { return candidateOf(t, server, shards, readers, 16) }},
			{"256 records", func() (*learned, *meter, func([]int, int)) { return candidateOf(t, server, shards, readers, 256) }},
		} {
			l, m, change := c.make()
			seq := 0
			row := "| " + c.name
			wait := func() {
				for l.behind() {
					time.Sleep(time.Millisecond)
				}
			}
			cost := func(f func(), changes int) string {
				wait()
				time.Sleep(200 * time.Millisecond)
				r, b := m.requests.Load(), m.received.Load()
				f()
				wait()
				time.Sleep(200 * time.Millisecond)
				return fmt.Sprintf(" | %.1f | %.1f", float64(m.requests.Load()-r)/float64(changes), float64(m.received.Load()-b)/1024/float64(changes))
			}
			single := func(n int) {
				for range n {
					seq++
					l.sent(seq, []int{seq * 7919 % shards})
					change([]int{seq * 7919 % shards}, seq)
					wait()
					time.Sleep(3 * time.Millisecond)
				}
			}
			single(300)
			l.lags = nil
			some := cost(func() { single(300) }, 300)
			row += fmt.Sprintf(" | %.2f", ms(l.percentile(50))) + some
			l.lags = nil
			some = cost(func() {
				var wg sync.WaitGroup
				tick := time.NewTicker(5 * time.Millisecond)
				defer tick.Stop()
				for range 1000 {
					<-tick.C
					seq++
					l.sent(seq, []int{seq * 7919 % shards})
					of := seq
					wg.Go(func() { change([]int{of * 7919 % shards}, of) })
				}
				wg.Wait()
			}, 1000)
			row += fmt.Sprintf(" | %.1f, %.1f", ms(l.percentile(50)), ms(l.percentile(99))) + some
			l.lags = nil
			some = cost(func() {
				seq++
				var all []int
				for i := range 1000 {
					all = append(all, i*7+3)
				}
				l.sent(seq, all)
				change(all, seq)
			}, 1)
			row += fmt.Sprintf(" | %.0f", ms(l.percentile(100))) + some
			fmt.Println(row + " |")
			for _, end := range slices.Backward(l.ends) {
				end()
			}
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// learned compares what was written with what the measured reader knows.
type learned struct {
	mu   sync.Mutex
	open map[int]map[int]time.Time // shard, number
	left int
	lags []time.Duration
	ends []func()
}

func (l *learned) sent(seq int, shards []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range shards {
		if l.open[s] == nil {
			l.open[s] = map[int]time.Time{}
		}
		l.open[s][seq] = time.Now()
		l.left++
	}
}

func (l *learned) got(shard, seq int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, at := range l.open[shard] {
		if n <= seq {
			l.lags = append(l.lags, time.Since(at))
			delete(l.open[shard], n)
			l.left--
		}
	}
}

func (l *learned) behind() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left > 0
}

func (l *learned) percentile(p int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.lags)
	return l.lags[min(len(l.lags)-1, len(l.lags)*p/100)]
}

// meter counts what the measured reader asks and receives.
type meter struct{ requests, received atomic.Int64 }

func (m *meter) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	return &metered{conn, m}, err
}

type metered struct {
	net.Conn
	m *meter
}

func (c *metered) Write(p []byte) (int, error) {
	c.m.requests.Add(1)
	return c.Conn.Write(p)
}

func (c *metered) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.m.received.Add(int64(n))
	return n, err
}

func today(t *testing.T, server *servers.Server, shards, readers int) (*learned, *meter, func([]int, int)) {
	name := fmt.Sprint("today", time.Now().UnixNano())
	l, m := &learned{open: map[int]map[int]time.Time{}}, new(meter)
	openIt := func(o Options) *Backend {
		o.Create = true
		b, err := Open(t.Context(), []string{server.Addr()}, name, &o)
		if err != nil {
			t.Fatal(err)
		}
		l.ends = append(l.ends, func() { b.Close() })
		return b
	}
	w := openIt(Options{})
	sides := []driver.Session{join(t, w, "a"), join(t, w, "b")}
	granted, _ := acquire(t, sides[0], claims(shards))
	fences := make([]driver.Fence, shards)
	for i, g := range granted {
		fences[i] = g.Fence
	}
	var mu sync.Mutex
	numbers := map[driver.Token]int{} // token of a grant: the change
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range readers {
		o := Options{}
		if i == 0 {
			o.dial = m.dial
		}
		b := openIt(o)
		v, err := b.Observe(ctx, driver.ObserveQuery{})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				next, err := b.Observe(ctx, driver.ObserveQuery{Since: v.Cursor})
				if err != nil {
					continue
				}
				v = next
				if i > 0 {
					continue
				}
				for _, s := range v.Shards {
					n, _ := strconv.Atoi(strings.TrimPrefix(string(s.Shard), "shard-"))
					// The reply with the token may come after the record.
					for k := 0; k < 10_000; k++ {
						mu.Lock()
						seq, ok := numbers[s.Owner.Token]
						mu.Unlock()
						if ok || s.Owner.Session == "" {
							l.got(n, seq)
							break
						}
						if s.Owner.Token <= granted[len(granted)-1].Fence.Token {
							break
						}
						time.Sleep(20 * time.Microsecond)
					}
				}
			}
		})
	}
	l.ends = append(l.ends, func() { cancel(); wg.Wait() })
	return l, m, func(list []int, seq int) {
		var by [2][]driver.Handover
		mu.Lock()
		for _, i := range list {
			from := 0
			if fences[i].Session == sides[1].ID() {
				from = 1
			}
			by[from] = append(by[from], driver.Handover{Fence: fences[i], To: sides[1-from].ID()})
		}
		mu.Unlock()
		var wg sync.WaitGroup
		for from, moves := range by {
			if len(moves) == 0 {
				continue
			}
			wg.Go(func() {
				res, err := sides[from].Transfer(t.Context(), moves)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, r := range res {
					if r.Err != nil {
						t.Error(r.Err)
						continue
					}
					n, _ := strconv.Atoi(strings.TrimPrefix(string(r.Fence.Shard), "shard-"))
					fences[n] = r.Fence
					numbers[r.Fence.Token] = seq
				}
			})
		}
		wg.Wait()
	}
}

func candidateOf(t *testing.T, server *servers.Server, shards, readers, parts int) (*learned, *meter, func([]int, int)) {
	root := fmt.Sprint("/candidate", time.Now().UnixNano())
	l, m := &learned{open: map[int]map[int]time.Time{}}, new(meter)
	acl := zk.WorldACL(zk.PermAll)
	dial := func(f func(ctx context.Context, addr string) (net.Conn, error)) *zk.Conn {
		conn, _, err := zk.Connect([]string{server.Addr()}, 10*time.Second, zk.WithLogger(silent{}),
			zk.WithDialer(func(_, addr string, _ time.Duration) (net.Conn, error) { return f(context.Background(), addr) }))
		if err != nil {
			t.Fatal(err)
		}
		l.ends = append(l.ends, conn.Close)
		return conn
	}
	w := dial(new(meter).dial)
	for _, p := range []string{"", "/s", "/log"} {
		if _, err := w.Create(root+p, nil, 0, acl); err != nil {
			t.Fatal(err)
		}
	}
	pad := strings.Repeat("x", 100)
	var nodes []any
	for i := range shards {
		nodes = append(nodes, &zk.CreateRequest{Path: fmt.Sprint(root, "/s/", i), Data: []byte("0 " + pad), Acl: acl})
	}
	for i := range parts {
		nodes = append(nodes, &zk.CreateRequest{Path: fmt.Sprint(root, "/log/", i), Acl: acl})
	}
	for some := range slices.Chunk(nodes, 500) {
		if _, err := w.Multi(some...); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range readers {
		conn := dial(new(meter).dial)
		if i == 0 {
			conn = dial(m.dial)
		}
		for part := range parts {
			wg.Go(func() {
				last := int32(-1)
				for ctx.Err() == nil {
					data, stat, changed, err := conn.GetW(fmt.Sprint(root, "/log/", part))
					if err != nil {
						return
					}
					switch {
					case last < 0 || stat.Version == last:
					case stat.Version == last+1:
						for line := range bytes.Lines(data) {
							var shard, seq int
							fmt.Sscan(string(line), &shard, &seq)
							if i == 0 {
								l.got(shard, seq)
							}
						}
					default: // it missed a write: it reads that part
						var reads sync.WaitGroup
						for s := part; s < shards; s += parts {
							reads.Go(func() {
								data, _, err := conn.Get(fmt.Sprint(root, "/s/", s))
								if err != nil {
									return
								}
								var seq int
								fmt.Sscan(string(data), &seq)
								if i == 0 {
									l.got(s, seq)
								}
							})
						}
						reads.Wait()
					}
					last = stat.Version
					select {
					case <-changed:
					case <-ctx.Done():
					}
				}
			})
		}
	}
	time.Sleep(500 * time.Millisecond)
	l.ends = append(l.ends, func() { cancel() })
	return l, m, func(list []int, seq int) {
		slots := make(chan struct{}, 4)
		var wg sync.WaitGroup
		for some := range slices.Chunk(list, 60) {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				var ops []any
				entries := map[int]*bytes.Buffer{}
				for _, s := range some {
					ops = append(ops, &zk.SetDataRequest{Path: fmt.Sprint(root, "/s/", s), Data: fmt.Appendf(nil, "%d %s", seq, pad), Version: -1})
					if entries[s%parts] == nil {
						entries[s%parts] = new(bytes.Buffer)
					}
					fmt.Fprintf(entries[s%parts], "%d %d %s\n", s, seq, pad)
				}
				for part, b := range entries {
					ops = append(ops, &zk.SetDataRequest{Path: fmt.Sprint(root, "/log/", part), Data: b.Bytes(), Version: -1})
				}
				if _, err := w.Multi(ops...); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
