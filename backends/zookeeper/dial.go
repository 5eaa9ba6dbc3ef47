package zookeeper

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

type linker func(ctx context.Context, server string) (*link, error)

type dialer func(ctx context.Context, addr string) (net.Conn, error)

// dialer returns the dial function, which resolves the server's name at each call.
func (o *Options) dialer() dialer {
	connect := o.dial
	if connect == nil {
		connect = func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	if o.TLS == nil {
		return connect
	}
	read := o.files
	if read == nil {
		read = func() (*tls.Config, error) { return o.TLS, nil }
	}
	begin := read.Dial(func(ctx context.Context, _, addr string) (net.Conn, error) { return connect(ctx, addr) })
	return func(ctx context.Context, addr string) (net.Conn, error) { return begin(ctx, "tcp", addr) }
}

// link returns a function that connects and begins a session.
func (o *Options) link() linker {
	dial := o.dialer()
	var reads sync.Map // by server
	return func(ctx context.Context, server string) (*link, error) {
		auth, err := o.auth()
		if err != nil {
			return nil, err
		}
		conn, err := dial(ctx, server)
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return nil, fmt.Errorf("%w: %w", errRefusedSession, err) // ended before the dialer ran
		}
		if err != nil {
			return nil, err
		}
		alone := standsAlone(ctx, dial, server)
		v, _ := reads.LoadOrStore(server, newLastRead())
		lk, err := newLink(ctx, conn, server, v.(*lastRead), auth, alone)
		if err == nil && o.passwordFile != "" {
			lk.outdated = func() bool {
				now, err := o.auth()
				return err == nil && !slices.EqualFunc(now, auth, bytes.Equal)
			}
		}
		return lk, err
	}
}

// auth returns a link's credentials: the configured password and the file's current password.
func (o *Options) auth() (auth [][]byte, err error) {
	all := []driver.Secret{o.Password}
	if o.passwordFile != "" {
		now, err := readPassword(o.passwordFile)
		if err != nil {
			return nil, err
		}
		all = append(all, now)
	}
	for _, p := range slices.Compact(all) {
		if o.User != "" {
			auth = append(auth, []byte(o.User+":"+string(p)))
		}
	}
	return auth, nil
}

// askTimeout limits the query of standsAlone.
const askTimeout = 200 * time.Millisecond

// standsAlone reports whether a server is outside an ensemble, using a command that servers allow
// by default. A server that does not answer counts as a member.
func standsAlone(ctx context.Context, dial dialer, server string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := dial(ctx, server)
	if err != nil {
		return false
	}
	defer conn.Close()
	limit, _ := ctx.Deadline()
	if conn.SetDeadline(limit) != nil {
		return false
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return false
	}
	text, _ := io.ReadAll(io.LimitReader(conn, 4096))
	return bytes.Contains(text, []byte("\nMode: standalone\n"))
}
