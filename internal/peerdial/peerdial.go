// Package peerdial connects to addresses that members of a namespace advertise. A member may
// advertise any address, so this package refuses loopback, link-local and other addresses of the
// local machine. The package connects to an address only after resolving the name and checking the
// resulting address.
package peerdial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// ErrLocal means that Dial refused a local address.
var ErrLocal = errors.New("the address is this machine's, loopback, link-local, multicast or unspecified: allow it, as an address and not as a name")

const timeout = 10 * time.Second

// Dial returns a function that connects to an address. The function refuses local addresses with
// ErrLocal, unless allowed is set and the address is written as an IP address. If forwards is set,
// the function also refuses the addresses of this machine's interfaces, because a member never
// forwards a request to itself.
func Dial(allowed, forwards bool) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		d := net.Dialer{Timeout: timeout}
		if _, literal := parse(address); !literal || !allowed {
			d.ControlContext = refuse
			if forwards {
				d.ControlContext = refuseOwn
			}
		}
		return d.DialContext(ctx, network, address)
	}
}

// Local reports whether an address, given as host and port, is a local address written as an IP
// address.
func Local(address string) bool {
	ip, ok := parse(address)
	return ok && local(ip)
}

// refuse checks each address before the dialer connects to the address.
func refuse(_ context.Context, _, address string, _ syscall.RawConn) error {
	if ip, ok := parse(address); !ok || local(ip) {
		return ErrLocal
	}
	return nil
}

// refuseOwn also refuses the addresses of this machine's interfaces.
func refuseOwn(ctx context.Context, network, address string, c syscall.RawConn) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("%w: this machine's are not known: %w", ErrLocal, err)
	}
	ip, _ := parse(address)
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == ip.Unmap().WithZone("") {
			return ErrLocal
		}
	}
	return refuse(ctx, network, address, c)
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
