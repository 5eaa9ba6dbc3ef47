package sidecar

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/tenure-go/tenure/core"
)

const unixPrefix = "unix:"

// Listen listens on a loopback IP address with a port, or on "unix:" followed by the path of a
// socket. Sockets require Linux, have mode 0600, and accept only connections from the user of this
// process. For any other address, Listen opens nothing and returns an error that matches
// core.ErrInvalid. The caller must close the listener, which also removes the socket.
func Listen(address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		if path == "" {
			return nil, invalid("the address %q names no socket: write unix:/run/tenure/tenure.sock", address)
		}
		if path[0] == '@' || strings.ContainsRune(path, 0) {
			return nil, invalid("the address %.200q is an abstract socket, which has no mode and no owner: write unix: and the path of a file", address)
		}
		return listenUnix(path)
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, invalid("the address %q is no IP address with a port: use 127.0.0.1:PORT, [::1]:PORT or unix:PATH", address)
	}
	if !at.Addr().IsLoopback() || at.Addr().Zone() != "" {
		return nil, invalid("the address %q is not of loopback, and the API is for this machine only: use 127.0.0.1:%d or unix:PATH",
			address, at.Port())
	}
	return new(net.ListenConfig).Listen(context.Background(), "tcp", at.String()) // an IP address needs no look-up
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("tenure: %w: %s", core.ErrInvalid, fmt.Sprintf(format, args...))
}

// A token must be long enough to be random, and short enough for a header.
const minToken, maxToken = 32, 4096

// ReadToken reads the token that clients send. The token file must be a regular file that belongs
// to the user of this process, and that no other user may read or write. The file must contain 32
// to 4096 printable ASCII characters without spaces. ReadToken ignores a final newline.
func ReadToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|withoutWaiting, 0)
	if err != nil {
		return "", fmt.Errorf("tenure: the token file: %w", err)
	}
	defer f.Close() //nolint:errcheck // the file was only read
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("tenure: the token file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", invalid("the token file %s is not a regular file", path)
	}
	if err := checkOwner(path, info); err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", invalid("the token file %s has mode %04o, so others may use it: chmod 0600 it", path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken+3))
	if err != nil {
		return "", fmt.Errorf("tenure: the token file: %w", err)
	}
	token := strings.TrimRight(string(text), "\r\n")
	if len(token) < minToken || len(token) > maxToken {
		return "", invalid("the token in %s has %d characters, outside %d to %d: write one with: openssl rand -hex 32",
			path, len(token), minToken, maxToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", invalid("the token in %s has blanks, line ends or characters outside ASCII: write one with: openssl rand -hex 32", path)
	}
	return token, nil
}

// The comparison takes constant time.
func sameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
