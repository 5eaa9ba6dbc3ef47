package peerdial

import (
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

// TestDial: a name is judged by what it resolves to, also where it was allowed, and an address
// unless it was allowed; nothing is connected to before.
func TestDial(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"} {
		for _, allowed := range []bool{false, true} {
			if allowed && host != "localhost" {
				continue
			}
			c, err := Dial(allowed)(t.Context(), "tcp", net.JoinHostPort(host, port))
			if !errors.Is(err, ErrLocal) {
				t.Errorf("%s, allowed %v: %v, want ErrLocal", host, allowed, err)
			}
			if c != nil {
				c.Close()
			}
		}
	}
	c, err := Dial(true)(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("an address that was allowed: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
