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

// Limits of how long one of several hosts may take to give a connection, if the DSN has no
// connect_timeout. Without them, the next host would be asked only after the system gave up on
// a silent one, which takes two minutes or more (E4). A connection often takes a twelfth of the
// shorter limit.
const (
	leastPatience = 250 * time.Millisecond
	hostPatience  = 2 * time.Second
)

// patiences is the number of values that patience can have: the least, and each doubling up to
// the most.
const patiences = 4

// usualTimes limits the time for a connection, as a multiple of the time that the last one took.
const usualTimes = 8

// hosts makes connections first ask the host that gave the last connection. So a silent host
// costs a process its patience only once, not for each connection. Patience doubles with each
// attempt until one succeeds, because the network may be slow. It is safe for concurrent use.
type hosts struct {
	patient bool // the DSN sets how long a host may take

	mu    sync.Mutex
	last  hostPort // gave the last connection
	took  time.Duration
	tried int // attempts since then
}

// hostPort is a host as in the DSN.
type hostPort struct {
	host string
	port uint16
}

type dialed struct {
	address string
	at      time.Time
}

// connecting prepares the configuration of one connection.
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
	var newest atomic.Pointer[dialed] // a later request to cancel dials too
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

// patience returns how long each host may take for the next connection.
func (h *hosts) patience() time.Duration {
	patience := max(leastPatience, usualTimes*h.took)
	for range min(h.tried, patiences-1) {
		patience *= 2
	}
	return min(patience, hostPatience)
}

// first moves the last host before the others. Entries of one host stay together, because they
// share its patience.
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

// gave records that a host gave a connection.
func (h *hosts) gave(host hostPort, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.took, h.tried = host, took, 0
}

// tooSlow reports whether a connection failed because each host was silent or slow.
func tooSlow(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return connecting && errors.Is(err, context.DeadlineExceeded)
}
