package routegrpc

import "google.golang.org/grpc"

var CheckAddress = checkAddress

// Take takes one of p's connections. done releases the connection.
func Take(p *Peers, address string) (done func(), err error) {
	_, done, err = p.take("", address)
	return done, err
}

// Kept returns the number of connections that p keeps.
func Kept(p *Peers) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Dial opens a connection as p does, but without checking the address.
func Dial(p *Peers, address string) (*grpc.ClientConn, error) { return p.dial(address) }
