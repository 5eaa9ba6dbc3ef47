package core

// poke makes the next receive from a channel with capacity one succeed.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// signal wakes goroutines that wait for a change. It belongs to a mutex, which callers of both
// methods must hold, and costs nothing without waiters.
type signal struct{ ch chan struct{} }

// wait returns a channel that the next call of wake closes.
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
