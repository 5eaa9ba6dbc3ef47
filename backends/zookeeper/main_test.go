package zookeeper

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
	"github.com/tenure-go/tenure/internal/proof/system"
)

var pool servers.Pool

// patient makes sessions so long that the client's own pings do not end a connection within
// ample.Time.
var patient = &servers.Options{Config: []string{"minSessionTimeout = 600000", "maxSessionTimeout = 600000"}}

func TestMain(m *testing.M) {
	if how := os.Getenv(candidateVariable); how != "" {
		if err := candidate(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if code, is := system.Member(Opener()); is {
		os.Exit(code)
	}
	system.AddFlags(flag.CommandLine)
	os.Exit(pool.RunExamples(m, servers.ZooKeeper, "ZOOKEEPER_SERVERS"))
}

// client returns a separate connection for the test, as the administrator.
func client(t testing.TB, members ...*servers.Server) *zk.Conn {
	t.Helper()
	var addrs []string
	for _, s := range members {
		addrs = append(addrs, s.Addr())
	}
	conn, _, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	admin := members[0].Admin()
	if err := conn.AddAuth("digest", []byte(admin.User()+":"+admin.Password())); err != nil {
		t.Fatal(err)
	}
	return conn
}

func openOn(t testing.TB, o Options, members ...*servers.Server) *Backend {
	t.Helper()
	o.Create = true
	return sqlfault.Open(t, func(ctx context.Context) (*Backend, error) { return Open(ctx, addrs(members), t.Name(), &o) })
}

func addrs(members []*servers.Server) []string {
	out := make([]string, len(members))
	for i, s := range members {
		out[i] = s.Addr()
	}
	return out
}

func bounded(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// traffic counts requests by their kind, as they go to the server.
type traffic struct{ reads, writes, waits atomic.Int64 }

func (c *traffic) calls() conformance.Calls {
	return conformance.Calls{Reads: c.reads.Load(), Writes: c.writes.Load(), Waits: c.waits.Load()}
}

func (c *traffic) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &counted{Conn: conn, traffic: c}, nil
}

// counted is a connection to a server. The client library writes one packet at a
// time.
type counted struct {
	net.Conn
	traffic *traffic
	begun   bool
}

func (c *counted) Write(p []byte) (int, error) {
	if c.begun && len(p) >= 12 {
		switch op := int32(binary.BigEndian.Uint32(p[8:])); {
		case op == 14 && isBarrier(p):
			c.traffic.reads.Add(1)
		case op == 1 || op == 2 || op == 5 || op == 14: // create, delete, setData, multi
			c.traffic.writes.Add(1)
		case op == 3 || op == 4 || op == 12: // exists, getData, getChildren2
			if p[len(p)-1] == 1 {
				c.traffic.waits.Add(1)
			} else {
				c.traffic.reads.Add(1)
			}
		case op == 9: // sync
			c.traffic.reads.Add(1)
		}
	}
	c.begun = true
	return c.Conn.Write(p)
}

// isBarrier reports whether a Multi has one check: the last header follows its path and version.
func isBarrier(p []byte) bool {
	const check, path = 13, 12 + 9
	if int32(binary.BigEndian.Uint32(p[12:])) != check {
		return false
	}
	next := path + 4 + int(binary.BigEndian.Uint32(p[path:])) + 4
	return len(p) == next+9
}
