package postgres

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// If the DSN has no connect_timeout, these constants limit the time for connecting to one of
// several hosts. Otherwise, the client would wait until the system gives up on a silent host, which
// takes two minutes or more (E4). Connecting often takes only a twelfth of the shorter limit.
const (
	leastPatience = 250 * time.Millisecond
	hostPatience  = 2 * time.Second
)

// patiences is the number of possible time limits, each of which is twice the previous one.
const patiences = 4

// usualTimes is the ratio of the time limit to the time that the last connection took.
const usualTimes = 8

// hosts makes each connection first try the host of the last connection. Therefore, a process waits
// for a silent host only once, and not for each connection. Because the network may be slow, the
// time limit doubles with each failed attempt. A hosts is safe for concurrent use.
type hosts struct {
	patient bool // the DSN sets how long a host may take

	mu    sync.Mutex
	last  hostPort // provided the last connection
	took  time.Duration
	tried int // attempts since then
}

// hostPort is a host and a port as given in the DSN.
type hostPort struct {
	host string
	port uint16
}

type dialed struct {
	address string
	at      time.Time
}

func (h *hosts) connecting(c *pgx.ConnConfig) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first(c)
	if !h.patient {
		c.ConnectTimeout = h.patience()
	}
	h.tried++
	names := map[string]string{} // by address
	lookup, dial := c.LookupFunc, c.DialFunc
	c.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		found, err := lookup(ctx, host)
		for _, address := range found {
			names[address] = host
		}
		return found, err
	}
	var newest atomic.Pointer[dialed] // a later cancel request also dials
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		newest.Store(&dialed{address, time.Now()})
		return dial(ctx, network, address)
	}
	c.AfterConnect = func(context.Context, *pgconn.PgConn) error {
		d := newest.Load()
		if address, port, err := net.SplitHostPort(d.address); err == nil { // otherwise it is a socket's path
			number, _ := strconv.ParseUint(port, 10, 16)
			h.gave(hostPort{cmp.Or(names[address], address), uint16(number)}, time.Since(d.at))
		}
		return nil
	}
}

// patience returns the time limit for connecting to each host.
func (h *hosts) patience() time.Duration {
	patience := max(leastPatience, usualTimes*h.took)
	for range min(h.tried, patiences-1) {
		patience *= 2
	}
	return min(patience, hostPatience)
}

// The host of the last connection moves to the front. Entries for one host stay together, because
// they share one time limit.
func (h *hosts) first(c *pgx.ConnConfig) {
	all := append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	slices.SortStableFunc(all, func(a, b *pgconn.FallbackConfig) int {
		return cmp.Compare(h.rank(a), h.rank(b))
	})
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = all[0].Host, all[0].Port, all[0].TLSConfig, all[1:]
}

func (h *hosts) rank(f *pgconn.FallbackConfig) int {
	if f.Host == h.last.host && f.Port == h.last.port {
		return 0
	}
	return 1
}

func (h *hosts) gave(host hostPort, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.took, h.tried = host, took, 0
}

// tooSlow reports whether connecting failed because all hosts were silent or slow.
func tooSlow(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return connecting && errors.Is(err, context.DeadlineExceeded)
}
