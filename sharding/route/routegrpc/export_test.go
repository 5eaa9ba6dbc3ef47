package routegrpc

import "google.golang.org/grpc"

// Take takes a connection of p; done gives it back.
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

// Dial makes a connection of p without checking the address.
func Dial(p *Peers, address string) (*grpc.ClientConn, error) { return p.dial(address) }
