package follower

// Callers of a signal's methods must hold the same mutex.
type signal struct{ ch chan struct{} }

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
