package peerdial

import (
	"context"
	"errors"
	"net"
	"testing"
)

func TestLocal(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "127.8.9.1:80": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true, "0.0.0.0:80": true,
		"0.1.2.3:80": true, "[::]:80": true, "169.254.169.254:80": true, "[fe80::1%eth0]:80": true, "224.0.0.1:80": true,
		"[ff02::1]:80": true, "255.255.255.255:80": true, "[::ffff:169.254.1.1]:80": true,
		"10.0.0.7:80": false, "192.168.1.1:80": false, "[fd00::7]:80": false, "8.8.8.8:80": false, "[2001:db8::1]:80": false,
		"localhost:80": false, "127.1:80": false, "x": false,
	} {
		if Local(address) != want {
			t.Errorf("%s: local is %v, want %v", address, !want, want)
		}
	}
}

// TestDial: for a name, the resolved addresses are checked, even if local addresses are allowed. An
// IP address is checked unless local addresses are allowed. No connection is made before the check.
func TestDial(t *testing.T) {
	t.Parallel()
	addr, port := listening(t, "127.0.0.1:0")
	for _, host := range []string{"localhost", "127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"} {
		for _, allowed := range []bool{false, true} {
			if allowed && host != "localhost" {
				continue
			}
			c, err := Dial(allowed, false)(t.Context(), "tcp", net.JoinHostPort(host, port))
			if !errors.Is(err, ErrLocal) {
				t.Errorf("%s, allowed %v: %v, want ErrLocal", host, allowed, err)
			}
			if c != nil {
				c.Close()
			}
		}
	}
	c, err := Dial(true, false)(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatalf("an address that was allowed: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestDialForwards: a member that forwards requests may connect only to allowed addresses of its
// machine's interfaces. No connection is made before the check. A member that does not forward
// requests may connect to all of these addresses.
func TestDialForwards(t *testing.T) {
	t.Parallel()
	_, port := listening(t, ":0")
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	global := 0
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP
		address := net.JoinHostPort(ip.String(), port)
		if ip.IsLinkLocalUnicast() {
			continue // it needs a zone
		}
		if c, err := Dial(false, true)(t.Context(), "tcp", address); !errors.Is(err, ErrLocal) {
			t.Errorf("%s: %v, %v, want ErrLocal", address, c, err)
		}
		if Local(address) {
			continue
		}
		global++
		for _, dial := range []func(context.Context, string, string) (net.Conn, error){Dial(false, false), Dial(true, true)} {
			c, err := dial(t.Context(), "tcp", address)
			if err != nil {
				t.Errorf("%s: %v", address, err)
				continue
			}
			_ = c.Close()
		}
	}
	if global == 0 {
		t.Skip("this machine has no address but loopback")
	}
}

// listening listens until the end of the test, and returns the listener's address and port.
func listening(t *testing.T, on string) (address, port string) {
	t.Helper()
	l, err := net.Listen("tcp", on)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	address = l.Addr().String()
	if _, port, err = net.SplitHostPort(address); err != nil {
		t.Fatal(err)
	}
	return address, port
}
