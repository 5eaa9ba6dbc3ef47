package core

// poke has the next receive of a channel with room for one succeed.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// signal wakes whoever waits for a change. It belongs to a mutex, under which
// both methods are called, and costs nothing while nobody waits.
type signal struct{ ch chan struct{} }

// wait returns a channel that the next wake closes.
func (s *signal) wait() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) wake() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
