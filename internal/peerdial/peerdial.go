// Package peerdial connects to addresses that members of a namespace advertise. A member may
// name any address: one of the process that connects, or of its link, is refused after names
// were resolved, so that a name cannot change its meaning in between.
package peerdial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// ErrLocal refuses an address.
var ErrLocal = errors.New("the address is loopback, link-local, multicast or unspecified: allow it, as an address and not as a name")

// timeout bounds a connection attempt.
const timeout = 10 * time.Second

// Dial returns a function that connects. It refuses local addresses with ErrLocal, but for
// those that are written as such where allowed says that the caller has allowed them.
func Dial(allowed bool) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		d := net.Dialer{Timeout: timeout}
		if _, literal := parse(address); !literal || !allowed {
			d.ControlContext = refuse
		}
		return d.DialContext(ctx, network, address)
	}
}

// Local reports whether an address, a host and a port, is a local one, written as such.
func Local(address string) bool {
	ip, ok := parse(address)
	return ok && local(ip)
}

// refuse is called with each address before it is connected to.
func refuse(_ context.Context, _, address string, _ syscall.RawConn) error {
	if ip, ok := parse(address); !ok || local(ip) {
		return ErrLocal
	}
	return nil
}

func parse(address string) (netip.Addr, bool) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(host)
	return ip, err == nil
}

func local(ip netip.Addr) bool {
	ip = ip.Unmap()
	if ip.Is4() {
		first := ip.As4()[0]
		return first == 0 || first >= 224 || ip.IsLoopback() || ip.IsLinkLocalUnicast() // 224 and up: multicast, reserved, broadcast
	}
	return ip.IsUnspecified() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast()
}
