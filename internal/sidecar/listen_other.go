//go:build !linux

package sidecar

import (
	"errors"
	"fmt"
	"net"

	"github.com/tenure-go/tenure/core"
)

func listenUnix(string) (net.Listener, error) {
	return nil, fmt.Errorf("tenure: %w: a Unix socket needs Linux, which names the client's user: use 127.0.0.1:PORT and a token file",
		core.ErrUnsupported)
}

func checkPeer(*net.UnixConn) error {
	return errors.New("the user of the client is not known on this system")
}

func pending(net.Conn) bool { return false } // this function is not used on this system
