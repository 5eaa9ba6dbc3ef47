package core

// poke makes the next receive from c succeed. The channel must have a capacity of one.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A signal wakes goroutines that wait for a change. Each signal belongs to a mutex, which callers
// of both methods must hold. A signal without waiters costs nothing.
type signal struct{ ch chan struct{} }

// wait returns a channel that the next call to wake closes.
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
